//! One run as a row: THE list of columns, from which the type, its JSON and the Parquet schema are made. A column that a
//! file lacks is null; to add one, add its line.

use serde::{Deserialize, Serialize};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// UTF-8.
    Text,
    /// A number, or bytes.
    Whole,
    /// A number with a fraction.
    Real,
    /// A moment in UTC; in JSON microseconds since 1970.
    Time,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

macro_rules! type_of {
    (Text) => {
        String
    };
    (Real) => {
        f64
    };
    ($other:ident) => {
        i64
    };
}

macro_rules! columns {
    ($($name:ident: $kind:ident, $help:literal;)*) => {
        /// A run. What is not known is null.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct Row {
            $(
                #[doc = $help]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(crate) $name: Option<type_of!($kind)>,
            )*
        }

        /// The columns in their order.
        pub(crate) const COLUMNS: &[Column] =
            &[$(Column { name: stringify!($name), kind: Kind::$kind, help: $help },)*];

        impl Row {
            /// Gives each column, in order, all of its cells.
            pub(crate) fn columns<E>(rows: &[Self], mut visit: impl FnMut(Cells<'_>) -> Result<(), E>) -> Result<(), E> {
                $(visit(Cells::$kind(rows.iter().map(|row| row.$name.as_ref()).collect()))?;)*
                Ok(())
            }

            /// Sets a cell by the name of its column; one of another kind, or of no known name, is left out.
            pub(crate) fn set(&mut self, name: &str, cell: Cell) {
                match (name, cell) {
                    $((stringify!($name), Cell::$kind(value)) => self.$name = Some(value),)*
                    _ => {}
                }
            }
        }
    };
}

/// All cells of a column.
pub(crate) enum Cells<'rows> {
    Text(Vec<Option<&'rows String>>),
    Whole(Vec<Option<&'rows i64>>),
    Real(Vec<Option<&'rows f64>>),
    Time(Vec<Option<&'rows i64>>),
}

/// One cell.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String),
    Whole(i64),
    Real(f64),
    Time(i64),
}

columns! {
    run: Text, "The run: when it began, its process and the machine's boot. No other run has it";
    started: Time, "When its recording began: its first call of CUDA";
    ended: Time, "When it was last seen";
    seconds: Real, "Between the two";
    host: Text, "The machine; Slurm's name of the node where there is one";
    user: Text, "The user, by name where the machine knows it";
    job: Text, "Slurm's number of the job";
    step: Text, "Slurm's number of the step";
    name: Text, "The job's name by Slurm, else the program: `train.py`";
    partition: Text, "Slurm's partition";
    task: Whole, "Its number among the ranks of the job";
    tasks: Whole, "How many ranks there are";
    pod: Text, "The pod, where WEIR_POD names it";
    cap_group: Text, "WEIR_GROUP: the runs that share a cap";
    command: Text, "The command line, its interpreter left out";
    framework: Text, "`tensorflow`, `pytorch` or `jax`, with the version where the machine has it";
    outcome: Text, "`ok`, `oom` (memory was refused, and it did not end well), `recovered` (refused, and ended well), `failed`, `killed`, `ended` (with what status is not known); null while it runs";
    exit_status: Whole, "The status with which it ended in order";
    ooms: Whole, "Requests for memory that were refused";
    cause: Text, "Why memory ran out, as in the report's JSON: `cap`, `growth`, `fragmentation`, …";
    evidence: Text, "The numbers that the cause rests on";
    line: Text, "`file:line` of the refused request";
    file: Text, "The whole path of that file";
    function: Text, "The function that line is in";
    op: Text, "The operation of the refused request";
    requested: Whole, "Bytes of the refused request";
    gpu: Text, "The model of the GPU: of the one that ran out, else of the fullest";
    gpu_uuid: Text, "Its UUID";
    gpus: Whole, "How many GPUs the run used";
    gpu_memory: Whole, "Bytes of that GPU";
    cap: Whole, "The cap in bytes; null where there was none";
    peak: Whole, "Most bytes live at once on that GPU";
    remedy: Text, "What the report advises first";
    remedy_check: Text, "How that was shown: `run`, `replayed` or `estimated`";
    events: Whole, "Events recorded";
    weir: Text, "The version of weir that wrote the row";
}

impl Row {
    /// Hours that the run held its GPUs.
    pub(crate) fn gpu_hours(&self) -> f64 {
        self.seconds.unwrap_or(0.0).max(0.0) * self.gpus.unwrap_or(1).max(1) as f64 / 3600.0
    }
}
