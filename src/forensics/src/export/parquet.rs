//! Parquet: the rows of `rows.rs` in columns, for DuckDB, pandas and Spark. Numbers are plain, texts have a dictionary,
//! pages are gzipped; one page a column and row group. A row group at a time is in memory.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use weir_journal::text::plain;

use super::names::Names;
use super::rows::{NUMBERS, Row, TEXTS, for_each_row};
use super::thrift::Struct;
use super::{Export, Failure};

/// Rows of a group: some twenty megabytes of memory.
const GROUP: usize = 128 << 10;

const MAGIC: &[u8; 4] = b"PAR1";
const TYPE_INT64: i32 = 2;
const TYPE_BYTES: i32 = 6;
const ENCODING_PLAIN: i32 = 0;
const ENCODING_RLE: i32 = 3;
const ENCODING_DICTIONARY: i32 = 8;
const CODEC_GZIP: i32 = 2;
const CONVERTED_UTF8: i32 = 0;
const CONVERTED_UINT64: i32 = 14;
const PAGE_DATA: i32 = 0;
const PAGE_DICTIONARY: i32 = 2;

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let header = export.timeline.reader().header();
    let about = [
        ("weir.pid", header.identity.pid.to_string()),
        ("weir.command", plain(&header.command.join(" ")).into_owned()),
    ];
    let mut table = Table { to, at: 0, groups: Vec::new(), rows: 0, held: Vec::with_capacity(GROUP) };
    table.send(MAGIC)?;
    let Export { timeline, names, progress, stacks, .. } = export;
    let mut done = 0;
    for_each_row(timeline, names, *stacks, |row, names| {
        table.held.push(*row);
        done += 1;
        progress(done, timeline.length());
        if table.held.len() >= GROUP { table.write_group(names) } else { Ok(()) }
    })?;
    table.write_group(names)?;
    table.write_footer(&about)
}

struct Table<'w> {
    to: &'w mut dyn Write,
    at: u64,
    groups: Vec<Struct>,
    rows: i64,
    held: Vec<Row>,
}

/// A page, packed: its header and its content.
fn page(kind: i32, values: usize, encoding: i32, content: &[u8]) -> Result<(Vec<u8>, i64), Failure> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(content)?;
    let packed = gzip.finish()?;
    let head = Struct::new().i32(1, kind).i32(2, content.len() as i32).i32(3, packed.len() as i32);
    let inner = Struct::new().i32(1, values as i32).i32(2, encoding);
    let head = if kind == PAGE_DICTIONARY {
        head.structure(7, inner)
    } else {
        head.structure(5, inner.i32(3, ENCODING_RLE).i32(4, ENCODING_RLE))
    };
    let mut bytes = head.end();
    let plain = (bytes.len() + content.len()) as i64;
    bytes.extend(packed);
    Ok((bytes, plain))
}

impl Table<'_> {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn write_group(&mut self, names: &Names<'_>) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.held);
        if rows.is_empty() {
            return Ok(());
        }
        let mut chunks = Vec::new();
        let mut size = 0;
        for (column, name) in NUMBERS.iter().enumerate() {
            let content: Vec<u8> = rows.iter().flat_map(|row| row.numbers[column].to_le_bytes()).collect();
            let at = self.at;
            let (bytes, plain) = page(PAGE_DATA, rows.len(), ENCODING_PLAIN, &content)?;
            self.send(&bytes)?;
            size += plain;
            let meta = Struct::new().i32(1, TYPE_INT64).i32s(2, &[ENCODING_PLAIN, ENCODING_RLE]).texts(3, &[name]);
            let meta = meta.i32(4, CODEC_GZIP).i64(5, rows.len() as i64).i64(6, plain).i64(7, bytes.len() as i64);
            chunks.push(Struct::new().i64(2, at as i64).structure(3, meta.i64(9, at as i64)));
        }
        for (column, name) in TEXTS.iter().enumerate() {
            let (dictionary, indices) = dictionary(&rows, column);
            let mut content = Vec::new();
            for number in &dictionary {
                let text = names.text_of(*number);
                content.extend((text.len() as u32).to_le_bytes());
                content.extend(text.as_bytes());
            }
            let start = self.at;
            let (first, plain) = page(PAGE_DICTIONARY, dictionary.len(), ENCODING_PLAIN, &content)?;
            self.send(&first)?;
            let data = self.at;
            let packed = packed_indices(&indices, dictionary.len());
            let (second, more) = page(PAGE_DATA, rows.len(), ENCODING_DICTIONARY, &packed)?;
            self.send(&second)?;
            let (plain, taken) = (plain + more, (first.len() + second.len()) as i64);
            size += plain;
            let encodings = [ENCODING_PLAIN, ENCODING_RLE, ENCODING_DICTIONARY];
            let meta = Struct::new().i32(1, TYPE_BYTES).i32s(2, &encodings).texts(3, &[name]).i32(4, CODEC_GZIP);
            let meta = meta.i64(5, rows.len() as i64).i64(6, plain).i64(7, taken);
            let meta = meta.i64(9, data as i64).i64(11, start as i64);
            chunks.push(Struct::new().i64(2, start as i64).structure(3, meta));
        }
        self.rows += rows.len() as i64;
        self.groups.push(Struct::new().structures(1, chunks).i64(2, size).i64(3, rows.len() as i64));
        self.held = rows;
        self.held.clear();
        Ok(())
    }

    fn write_footer(&mut self, about: &[(&str, String)]) -> Result<(), Failure> {
        let mut schema = vec![Struct::new().text(4, "events").i32(5, (NUMBERS.len() + TEXTS.len()) as i32)];
        for name in NUMBERS {
            let column = Struct::new().i32(1, TYPE_INT64).i32(3, 0).text(4, name);
            schema.push(match name {
                "address" => column.i32(6, CONVERTED_UINT64),
                // A moment in UTC, in nanoseconds.
                "time_ns" => {
                    let unit = Struct::new().structure(3, Struct::new());
                    let moment = Struct::new().yes(1).structure(2, unit);
                    column.structure(10, Struct::new().structure(8, moment))
                }
                _ => column,
            });
        }
        for name in TEXTS {
            schema.push(Struct::new().i32(1, TYPE_BYTES).i32(3, 0).text(4, name).i32(6, CONVERTED_UTF8));
        }
        let about = about.iter().map(|(key, value)| Struct::new().text(1, key).text(2, value)).collect();
        let footer = Struct::new()
            .i32(1, 2)
            .structures(2, schema)
            .i64(3, self.rows)
            .structures(4, std::mem::take(&mut self.groups))
            .structures(5, about)
            .text(6, concat!("weir ", env!("CARGO_PKG_VERSION")))
            .end();
        self.send(&footer)?;
        self.send(&(footer.len() as u32).to_le_bytes())?;
        self.send(MAGIC)
    }
}

/// The different texts of a column, and which of them each row has.
fn dictionary(rows: &[Row], column: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut order, mut places) = (Vec::new(), HashMap::new());
    let indices = rows.iter().map(|row| {
        *places.entry(row.texts[column]).or_insert_with(|| {
            order.push(row.texts[column]);
            order.len() as u32 - 1
        })
    });
    let indices = indices.collect();
    (order, indices)
}

/// Indices as one bit-packed run, with the number of bits before it.
fn packed_indices(indices: &[u32], different: usize) -> Vec<u8> {
    let bits = usize::BITS - different.saturating_sub(1).leading_zeros();
    // A run has whole groups of eight; its length says how many.
    let groups = indices.len().div_ceil(8);
    let mut bytes = vec![bits as u8];
    let mut head = (groups as u64) << 1 | 1;
    while head >= 0x80 {
        bytes.push(head as u8 | 0x80);
        head >>= 7;
    }
    bytes.push(head as u8);
    let (mut held, mut count) = (0_u64, 0);
    for index in indices.iter().copied().chain(std::iter::repeat_n(0, groups * 8 - indices.len())) {
        held |= u64::from(index) << count;
        count += bits;
        while count >= 8 {
            bytes.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_packed_as_published() {
        // The numbers 0 to 7 in three bits each: the example of the format's own documentation.
        assert_eq!(packed_indices(&[0, 1, 2, 3, 4, 5, 6, 7], 8), [3, 3, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        // One text only: no bits at all.
        assert_eq!(packed_indices(&[0; 20], 1), [0, 7]);
    }
}
