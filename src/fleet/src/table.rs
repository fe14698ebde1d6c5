//! Rows as a Parquet file and back, by the parquet crate. Texts have a dictionary, pages are compressed by Snappy, which
//! every reader has; statistics are kept by row group.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::row::{COLUMNS, Cell, Cells, Kind, Row};

/// Rows of a row group.
const GROUP: usize = 100_000;

fn schema() -> String {
    let mut text = String::from("message run {\n");
    for column in COLUMNS {
        let kind = match column.kind {
            Kind::Text => ("BYTE_ARRAY", "(STRING)"),
            Kind::Whole => ("INT64", ""),
            Kind::Real => ("DOUBLE", ""),
            Kind::Time => ("INT64", "(TIMESTAMP(MICROS,true))"),
        };
        let _ = writeln!(text, "  OPTIONAL {} {} {};", kind.0, column.name, kind.1);
    }
    text + "}"
}

/// A file of these rows.
pub(crate) fn written(rows: &[Row]) -> Result<Vec<u8>> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_created_by(format!("weir {}", env!("CARGO_PKG_VERSION")))
        .build();
    let schema = Arc::new(parse_message_type(&schema())?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    for rows in rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        Row::columns(rows, |cells| {
            let Some(mut column) = group.next_column()? else { return Err(foreign("a column is missing")) };
            write(column.untyped(), cells)?;
            column.close()
        })?;
        group.close()?;
    }
    writer.into_inner()
}

fn write(to: &mut ColumnWriter<'_>, cells: Cells<'_>) -> Result<usize> {
    fn split<T, V>(cells: Vec<Option<&T>>, value: impl Fn(&T) -> V) -> (Vec<V>, Vec<i16>) {
        let levels = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
        (cells.into_iter().flatten().map(value).collect(), levels)
    }
    match (to, cells) {
        (ColumnWriter::ByteArrayColumnWriter(to), Cells::Text(cells)) => {
            let (values, levels) = split(cells, |text| ByteArray::from(text.as_str()));
            to.write_batch(&values, Some(&levels), None)
        }
        (ColumnWriter::Int64ColumnWriter(to), Cells::Whole(cells) | Cells::Time(cells)) => {
            let (values, levels) = split(cells, |number| *number);
            to.write_batch(&values, Some(&levels), None)
        }
        (ColumnWriter::DoubleColumnWriter(to), Cells::Real(cells)) => {
            let (values, levels) = split(cells, |number| *number);
            to.write_batch(&values, Some(&levels), None)
        }
        _ => Err(foreign("a column is of another kind")),
    }
}

fn foreign(why: &str) -> ParquetError {
    ParquetError::General(why.into())
}

/// The rows of a file, with the columns that are wanted; all, if none is named.
pub(crate) fn read(file: Bytes, wanted: &[&str]) -> Result<Vec<Row>> {
    let reader = SerializedFileReader::new(file)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let mut rows = Vec::new();
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number)?;
        // A number in a file may be anything; rows are made as they are read.
        let claimed = usize::try_from(group.metadata().num_rows()).map_err(|_| foreign("a negative number of rows"))?;
        let first = rows.len();
        for column in COLUMNS.iter().filter(|column| wanted.is_empty() || wanted.contains(&column.name)) {
            let Some(place) = (0..schema.num_columns()).find(|place| schema.column(*place).name() == column.name)
            else {
                continue;
            };
            let flat = schema.column(place);
            if flat.max_rep_level() != 0 || flat.max_def_level() > 1 {
                return Err(foreign("a column is nested"));
            }
            let required = flat.max_def_level() == 0;
            let cells = cells(group.get_column_reader(place)?, column.kind, claimed, required)?;
            rows.resize_with(rows.len().max(first + cells.len()), Row::default);
            for (row, cell) in rows[first..].iter_mut().zip(cells) {
                if let Some(cell) = cell {
                    row.set(column.name, cell);
                }
            }
        }
    }
    Ok(rows)
}

/// The cells of a column of a row group.
fn cells(column: ColumnReader, kind: Kind, rows: usize, required: bool) -> Result<Vec<Option<Cell>>> {
    macro_rules! all {
        ($reader:ident, $cell:expr) => {{
            let (mut values, mut levels, mut got) = (Vec::new(), Vec::new(), 0);
            while got < rows {
                let (records, ..) =
                    $reader.read_records((rows - got).min(GROUP), Some(&mut levels), None, &mut values)?;
                if records == 0 {
                    break;
                }
                got += records;
            }
            if required {
                levels = vec![1; values.len()];
            }
            let mut values = values.into_iter();
            let cell = |level: i16| if level > 0 { values.next().map($cell).transpose() } else { Ok(None) };
            levels.into_iter().map(cell).collect()
        }};
    }
    match (column, kind) {
        (ColumnReader::ByteArrayColumnReader(mut reader), Kind::Text) => {
            all!(reader, |bytes: ByteArray| { Ok(Cell::Text(bytes.as_utf8()?.to_owned())) })
        }
        (ColumnReader::Int64ColumnReader(mut reader), Kind::Whole) => all!(reader, |number| Ok(Cell::Whole(number))),
        (ColumnReader::Int64ColumnReader(mut reader), Kind::Time) => all!(reader, |number| Ok(Cell::Time(number))),
        (ColumnReader::DoubleColumnReader(mut reader), Kind::Real) => all!(reader, |number| Ok(Cell::Real(number))),
        _ => Err(foreign("a column is of another kind")),
    }
}

/// The ids of the runs in a file.
pub(crate) fn ids(file: Bytes) -> Result<HashSet<String>> {
    Ok(read(file, &["run"])?.into_iter().filter_map(|row| row.run).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: i64) -> Row {
        Row {
            run: Some(format!("r{number}")),
            started: Some(1_700_000_000_000_000 + number),
            seconds: Some(number as f64 / 2.0),
            line: (number % 2 == 0).then(|| format!("train.py:{number}")),
            cap: (number % 3 == 0).then_some(number << 30),
            ..Row::default()
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        for count in [0, 1, 2, 1000, GROUP as i64 + 7] {
            let rows: Vec<Row> = (0..count).map(row).collect();
            let file = Bytes::from(written(&rows).unwrap());
            assert!(read(file.clone(), &[]).unwrap() == rows, "{count}");
            assert_eq!(ids(file).unwrap().len() as i64, count);
        }
    }

    #[test]
    fn only_what_is_wanted_is_read() {
        let file = Bytes::from(written(&[row(6)]).unwrap());
        let only = Row { cap: Some(6 << 30), run: Some("r6".into()), ..Row::default() };
        assert_eq!(read(file, &["cap", "run"]).unwrap(), [only]);
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let whole = written(&(0..50).map(row).collect::<Vec<_>>()).unwrap();
        for length in (0..whole.len()).step_by(7) {
            assert!(read(Bytes::copy_from_slice(&whole[..length]), &[]).is_err(), "{length}");
        }
    }
}
