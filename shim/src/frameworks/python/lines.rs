//! Line numbers out of a code object's table, in the three forms that CPython 3.9 to 3.13 use.

use super::layout::Table;

/// The line of the instruction at byte `at`, in code whose first line is `first`; `next` yields the table's bytes.
/// `None` when the table ends before, or says that the instruction has no line.
pub(crate) fn line_at(form: Table, first: i64, at: i64, next: &mut dyn FnMut() -> Option<u8>) -> Option<i64> {
    match form {
        Table::Increments => Some(by_increments(first, at, next)),
        Table::Ranges => by_ranges(first, at, next),
        Table::Locations => by_locations(first, at, next),
    }
}

/// Pairs: so many bytes further, so many lines further (signed).
fn by_increments(first: i64, at: i64, next: &mut dyn FnMut() -> Option<u8>) -> i64 {
    let (mut line, mut address) = (first, 0);
    while let (Some(bytes), Some(lines)) = (next(), next()) {
        address += i64::from(bytes);
        if address > at {
            break;
        }
        line += i64::from(lines as i8);
    }
    line
}

/// Pairs: length of a range, and how many lines it is from the one before (signed; -128: it has no line).
fn by_ranges(first: i64, at: i64, next: &mut dyn FnMut() -> Option<u8>) -> Option<i64> {
    let (mut line, mut end) = (first, 0);
    loop {
        let (bytes, lines) = (next()?, next()? as i8);
        end += i64::from(bytes);
        if lines != -128 {
            line += i64::from(lines);
        }
        if at < end {
            return (lines != -128).then_some(line);
        }
    }
}

/// Entries that begin with a byte above 127: form in bits 3 to 6, units of two bytes less one in bits 0 to 2. Forms 0 to 9
/// stay in the line, 10 to 12 go 0 to 2 lines further, 13 and 14 go a signed number further, 15 has no line.
fn by_locations(first: i64, at: i64, next: &mut dyn FnMut() -> Option<u8>) -> Option<i64> {
    let (mut line, mut end) = (first, 0);
    let mut head = next()?;
    loop {
        let form = head >> 3 & 15;
        end += (i64::from(head & 7) + 1) * 2;
        let mut number = 0_u64;
        let (mut shift, mut more) = (0, form == 13 || form == 14);
        // The rest of the entry: the signed number where there is one, then columns, which nobody here needs.
        let following = loop {
            match next() {
                None => break None,
                Some(byte) if byte & 0x80 != 0 => break Some(byte),
                Some(byte) if more => {
                    number |= u64::from(byte & 63) << shift;
                    shift = (shift + 6).min(58);
                    more = byte & 64 != 0;
                }
                Some(_) => {}
            }
        };
        line += match form {
            10..=12 => i64::from(form) - 10,
            13 | 14 if number & 1 == 1 => -((number >> 1) as i64),
            13 | 14 => (number >> 1) as i64,
            _ => 0,
        };
        if at < end {
            return (form != 15).then_some(line);
        }
        head = following?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(form: Table, table: &[u8], first: i64, at: &[i64]) -> Vec<Option<i64>> {
        let line = |at: &i64| {
            let mut bytes = table.iter().copied();
            line_at(form, first, *at, &mut || bytes.next())
        };
        at.iter().map(line).collect()
    }

    #[test]
    fn increments_may_go_back() {
        // 0..6: line 10; 6..: 12; 10..: 11.
        let table = [6, 2, 4, 0xff];
        let expected = [Some(10), Some(10), Some(12), Some(11), Some(11)];
        assert_eq!(lines(Table::Increments, &table, 10, &[0, 5, 6, 10, 100]), expected);
    }

    #[test]
    fn ranges_may_have_no_line() {
        // 0..4: 10; 4..8: none; 8..10: 13.
        let table = [4, 0, 4, 0x80, 2, 3];
        assert_eq!(lines(Table::Ranges, &table, 10, &[0, 4, 8, 10]), [Some(10), None, Some(13), None]);
    }

    #[test]
    fn locations_of_every_form() {
        let table = [
            0x80 | 1 << 3,
            0x11, // 0..2: short form, line 5
            0x80 | 12 << 3 | 1,
            3,
            4, // 2..6: two lines further
            0x80 | 13 << 3,
            0x43,
            0x01,           // 6..8: signed number 67: 33 lines back
            0x80 | 15 << 3, // 8..10: none
            0x80 | 14 << 3,
            8,
            0,
            1,
            2, // 10..12: four lines further
        ];
        let expected = [Some(5), Some(7), Some(7), Some(-26), None, Some(-22), None];
        assert_eq!(lines(Table::Locations, &table, 5, &[0, 2, 5, 6, 8, 10, 12]), expected);
    }

    #[test]
    fn nonsense_ends() {
        for form in [Table::Increments, Table::Ranges, Table::Locations] {
            for fill in [0, 0x7f, 0x80, 0xff] {
                lines(form, &[fill; 4096], i64::from(i32::MAX), &[0, 1 << 20]);
            }
        }
    }
}
