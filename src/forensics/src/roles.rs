//! What memory is for: parameters, optimizer state, gradients, activations, workspaces, inputs. Operation names, callers
//! and regions decide first ([`by_name`]); then shapes, sizes and how long memory lives (`assign.rs`). Each answer comes
//! with the rule that gave it.

mod assign;

use weir_journal::reader::{Line, OpName};
use weir_journal::{Class, layout::HOST_DEVICE};

pub(crate) use assign::{assign, batch_size, is_maker};

use crate::fault;
use crate::names::{Who, function};
use crate::survey::{Owner, Steps};

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Weights of the model.
    Parameters,
    /// What an optimizer keeps for each weight.
    Optimizer,
    /// Derivatives.
    Gradients,
    /// Results of the forward pass.
    Activations,
    /// Scratch memory of a library.
    Workspaces,
    /// Data on its way into the model.
    Inputs,
    /// Contexts, loaded code and the driver's own memory.
    Overhead,
    /// Anything else.
    Other,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 8] = [
        Self::Parameters,
        Self::Optimizer,
        Self::Gradients,
        Self::Activations,
        Self::Workspaces,
        Self::Inputs,
        Self::Overhead,
        Self::Other,
    ];

    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Optimizer => "optimizer state",
            Self::Gradients => "gradients",
            Self::Activations => "activations",
            Self::Workspaces => "workspaces",
            Self::Inputs => "inputs",
            Self::Overhead => "overhead",
            Self::Other => "other",
        }
    }
}

/// The rule for what a program itself keeps beside its variables.
pub(crate) const COPY: &str = "a copy of a variable, or zeros in its shape, kept beside it";

/// The rule for what an optimizer computes while it applies gradients: it does not outlive the step.
pub(crate) const UPDATE: &str = "computed while gradients are applied";

/// A role and the rule that gave it.
pub type Ruling = (Role, &'static str);

/// Parts of operation names, in lower case, and what they say. The first that fits decides.
const BY_OP: [(&[&str], Role, &str); 6] = [
    (
        &["resourceapply", "adam/", "/adam", "rmsprop", "momentum/", "adagrad", "ftrl", "lamb/", "optimizer"],
        Role::Optimizer,
        "the operation is an optimizer's",
    ),
    (
        &["gradient_tape", "gradients/", "backprop", "_grad", "grad/", "/grad", "gradv3", "relugrad", "allreduce"],
        Role::Gradients,
        "the operation computes a derivative",
    ),
    (
        &[
            "iteratorgetnext",
            "getnext",
            "prefetch",
            "tensorslicedataset",
            "tensordataset",
            "_recv",
            "recvdone",
            "eagerconst",
            "decodejpeg",
            "parseexample",
        ],
        Role::Inputs,
        "the operation brings data in",
    ),
    (
        &[
            "varhandleop",
            "assignvariableop",
            "assignaddvariableop",
            "assignsubvariableop",
            "initializer",
            "glorot",
            "he_normal",
            "statelessrandomuniform",
            "truncatednormal",
            "statelessrandomnormal",
            "variablev2",
            "restorev2",
        ],
        Role::Parameters,
        "the operation initialises a variable",
    ),
    (&["workspace", "scratch"], Role::Workspaces, "the operation names scratch memory"),
    (&["/readvariableop", "readvariableop/"], Role::Parameters, "the operation reads a variable"),
];

/// Parts of Python files and functions, and what they say.
const BY_LINE: [(&[&str], &[&str], Role, &str); 2] = [
    (
        &["/initializers/", "/variables.py", "resource_variable_ops.py"],
        &["add_weight", "add_variable", "_initialize_with_initializer", "_deferred_initialize"],
        Role::Parameters,
        "called while a variable is made",
    ),
    (
        &["/data/ops/", "data_adapter", "/data_adapters/", "iterator_ops.py"],
        &["from_tensor_slices", "convert_to_tensor", "constant"],
        Role::Inputs,
        "called while data is brought in",
    ),
];

/// What an operation's memory is to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// A tensor: its result, or what it keeps.
    Tensor,
    /// Scratch memory that it gives back at its end.
    Temporary,
    /// Requested by a library that it called: cuBLAS for its handle, say.
    Library,
}

/// Whether an operation brings data in.
pub(crate) fn is_input(op: &str) -> bool {
    let op = op.to_ascii_lowercase();
    BY_OP.iter().any(|(parts, role, _)| *role == Role::Inputs && parts.iter().any(|part| op.contains(part)))
}

/// The region of what XLA requests in TensorFlow, once for all operations of what it compiled.
pub(crate) const XLA: &str = "xla";

/// Whether XLA makes the request, once for all operations of what it compiled.
pub fn is_compiled(who: &Who) -> bool {
    who.op.region == XLA
}

/// TensorFlow's numbers of 8-bit types, in which libraries request scratch memory.
const BYTES: [u32; 2] = [4, 6];

/// By the region's name, and by what is requested.
pub fn region(who: &Who) -> Region {
    let op = &*who.op;
    match op.region.as_str() {
        "library" => Region::Library,
        // A variable that somebody still reads gets its new value in memory that was requested as temporary, and keeps it.
        "temp" if is_assignment(op) => Region::Tensor,
        // So do results of some operations (Einsum, Softmax): scratch memory is a row of bytes, a result has a shape.
        "temp" if !BYTES.contains(&op.dtype) && dimensions(&op.shape).is_some_and(|sides| sides.len() > 1) => {
            Region::Tensor
        }
        "temp" | "scratch" | "workspace" => Region::Temporary,
        // cuDNN's trials of algorithms: no tensor, so neither type nor shape nor region.
        "" if !op.name.is_empty() && op.dtype == 0 && op.shape.is_empty() => Region::Temporary,
        _ => Region::Tensor,
    }
}

/// Whether an operation gives a variable a new value.
pub(crate) fn is_assignment(op: &OpName) -> bool {
    op.name.contains("Assign") && op.name.contains("VariableOp")
}

/// The sides of a shape such as `[8,64,64,3]`; none where it is not known.
pub fn dimensions(shape: &str) -> Option<Vec<u64>> {
    let inside = shape.strip_prefix('[')?.strip_suffix(']')?;
    inside.split(',').filter(|side| !side.is_empty()).map(|side| side.trim().parse().ok()).collect()
}

/// Whether a line belongs to the code that computes derivatives.
fn is_backward(line: &Line) -> bool {
    let file = line.file.as_str();
    let tape = file.ends_with("/eager/backprop.py") || file.ends_with("/eager/imperative_grad.py");
    tape || (file.contains("/tensorflow/") && file.ends_with("_grad.py"))
}

/// Whether a line belongs to an optimizer.
fn is_optimizer(line: &Line) -> bool {
    let parts = ["/optimizers/", "/optimizer_v2/", "/optimizer/"];
    parts.iter().any(|part| line.file.contains(part)) || ["apply_gradients", "build_slots"].contains(&function(line))
}

/// What the nearest caller that computes or applies derivatives says.
fn by_caller(who: &Who) -> Option<Ruling> {
    let line = who.python.lines.iter().find(|line| is_backward(line) || is_optimizer(line))?;
    if is_backward(line) {
        return Some((Role::Gradients, "called while derivatives are computed"));
    }
    if is_update(&who.op) && !makes_slots(who) {
        return Some((Role::Workspaces, UPDATE));
    }
    Some((Role::Optimizer, "called from an optimizer"))
}

/// Kinds of operations with which an optimizer computes an update.
const UPDATES: [&str; 19] = [
    "mul",
    "sub",
    "sqrt",
    "rsqrt",
    "add",
    "addv2",
    "truediv",
    "realdiv",
    "square",
    "pow",
    "maximum",
    "minimum",
    "neg",
    "sign",
    "reciprocal",
    "cast",
    "concat",
    "clipbyvalue",
    "sum",
];

fn is_update(op: &OpName) -> bool {
    let kind = op.name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let kind = kind.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('_');
    UPDATES.contains(&kind)
}

/// Whether an optimizer makes what it keeps.
fn makes_slots(who: &Who) -> bool {
    let functions =
        ["build", "add_variable", "add_variable_from_reference", "add_optimizer_variables", "add_slot", "build_slots"];
    who.python.lines.iter().any(|line| functions.contains(&function(line)))
}

/// The role that names, region and class alone give.
pub fn by_name(who: &Who, class: Class, device: u8) -> Ruling {
    match class {
        Class::Overhead => return (Role::Overhead, "the driver's own memory"),
        Class::Pinned | Class::Registered => return (Role::Inputs, "host memory for transfers"),
        _ if device == HOST_DEVICE => return (Role::Other, "host memory"),
        _ => {}
    }
    match region(who) {
        Region::Library => return (Role::Workspaces, "requested by a library that an operation called"),
        Region::Temporary => return (Role::Workspaces, "the region is temporary"),
        Region::Tensor => {}
    }
    // TensorFlow's graph optimizer leaves its own name in those of the operations that it makes: it holds nothing.
    let op = who.op.name.to_ascii_lowercase().replace("layoutoptimizer", "").replace("arithmeticoptimizer/", "");
    // A transposed convolution computes its result by what is a derivative of others. By itself, that has the tape among its callers.
    let lines = &who.python.lines;
    let transposed = op.contains("backpropinput") && !op.contains('/') && !lines.is_empty();
    let forward = transposed && !lines.iter().any(is_backward) && !fault::is_off("roles::transposed");
    let by_op = BY_OP
        .iter()
        .find(|(parts, role, _)| !(forward && *role == Role::Gradients) && parts.iter().any(|part| op.contains(part)));
    // A variable's value, its slot and a constant come from the same operations: the Python lines distinguish them.
    let lined = BY_LINE.iter().find(|(files, functions, ..)| {
        who.python
            .lines
            .iter()
            .any(|line| files.iter().any(|part| line.file.contains(part)) || functions.contains(&function(line)))
    });
    let sure = by_op.filter(|(_, role, _)| matches!(role, Role::Gradients | Role::Optimizer | Role::Workspaces));
    let update = sure.filter(|(_, role, _)| *role == Role::Optimizer && is_update(&who.op) && !makes_slots(who));
    let update = update.map(|_| (Role::Workspaces, UPDATE));
    let lined = lined.map(|(.., role, rule)| (*role, *rule));
    let named = |found: &(_, Role, &'static str)| (found.1, found.2);
    // What is new of a variable in a graph has the optimizer's name and is the variable's.
    let updated = op.contains("assignsubvariableop").then_some((Role::Parameters, "the new value of a variable"));
    // Rows that a layer reads of its table come with the batch, though the code of variables reads them.
    let rows = op.contains("resourcegather").then_some((Role::Activations, "rows that are read of a variable"));
    let rows = rows.filter(|_| sure.is_none() && by_caller(who).is_none());
    if let Some(ruling) =
        rows.or(updated).or(update).or(sure.map(named)).or_else(|| by_caller(who)).or(lined).or(by_op.map(named))
    {
        return ruling;
    }
    match class {
        Class::Device if who.is_nameless() => {
            (Role::Workspaces, "taken straight from the driver by no operation: a library's own")
        }
        // A tensor that TensorFlow copies to the device carries the name of the operation whose result it is.
        _ if who.op.region == "copy" => (Role::Inputs, "copied to the device"),
        _ if who.op.region == "output" || !op.is_empty() => {
            (Role::Activations, "the result of an operation of the forward pass")
        }
        _ => (Role::Other, "nothing shows what it is"),
    }
}

/// The role of an owner, and the rule that gave it.
pub fn of(owner: &Owner, _: &Steps) -> Ruling {
    owner.ruling
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Chain;
    use std::sync::Arc;
    use weir_journal::reader::{Line, OpName};

    fn who(op: &str, region: &str, lines: &[(&str, &str)]) -> Who {
        let lines =
            lines.iter().map(|(file, function)| Line { file: (*file).into(), function: (*function).into(), line: 1 });
        Who {
            op: Arc::new(OpName { name: op.into(), region: region.into(), ..OpName::default() }),
            python: Arc::new(Chain { lines: lines.collect(), users: None }),
            stack: 0,
        }
    }

    #[test]
    fn names_show_roles() {
        let keras = "/v/site-packages/keras/src";
        for (op, region, file, function, role) in [
            ("StatefulPartitionedCall/gradient_tape/model/conv/Conv2DBackpropInput", "output", "", "", Role::Gradients),
            ("StatefulPartitionedCall/model/conv1/Conv2D", "output", "", "", Role::Activations),
            ("StatefulPartitionedCall/model/conv1/Conv2D", "temp", "", "", Role::Workspaces),
            ("Conv2D", "library", "", "", Role::Workspaces),
            ("StatefulPartitionedCall/AssignSubVariableOp_3", "temp", "", "", Role::Parameters),
            ("adam/mul_3", "output", "", "", Role::Workspaces),
            ("adam/kernel_momentum/Initializer/zeros", "output", "", "", Role::Optimizer),
            ("adam/AssignAddVariableOp_3", "temp", "", "", Role::Optimizer),
            ("model/conv/Conv2D-0-TransposeNCHWToNHWC-LayoutOptimizer", "output", "", "", Role::Activations),
            ("ArithmeticOptimizer/ReorderCast_model/Cast", "output", "", "", Role::Activations),
            ("my_optimizer/slot", "output", "", "", Role::Optimizer),
            ("StatelessRandomUniformV2", "output", "", "", Role::Parameters),
            ("Fill", "output", "optimizers/base_optimizer.py", "build", Role::Optimizer),
            ("Fill", "output", "layers/layer.py", "add_weight", Role::Parameters),
            ("IteratorGetNext", "output", "", "", Role::Inputs),
            ("_EagerConst", "output", "", "", Role::Inputs),
            ("images", "copy", "", "", Role::Inputs),
            ("ResourceGather", "output", "ops/resource_variable_ops.py", "sparse_read", Role::Activations),
            ("Fill", "output", "ops/resource_variable_ops.py", "__init__", Role::Parameters),
            ("Conv2DBackpropInput", "output", "layers/conv2d_transpose.py", "call", Role::Activations),
            ("Conv2DBackpropInput", "output", "", "", Role::Gradients),
            ("gradient_tape/table/ResourceGather", "output", "", "", Role::Gradients),
            ("gradient_tape/dense/MatMul", "copy", "", "", Role::Gradients),
            ("", "", "", "", Role::Other),
        ] {
            let line = [(&*format!("{keras}/{file}"), function)];
            let found = by_name(&who(op, region, if file.is_empty() { &[] } else { &line }), Class::Block, 0);
            assert_eq!(found.0, role, "{op} {region} {file} {function}: {found:?}");
        }
        assert_eq!(by_name(&who("", "", &[]), Class::Device, 0).0, Role::Workspaces);
        assert_eq!(by_name(&who("x", "", &[]), Class::Pinned, HOST_DEVICE).0, Role::Inputs);
        assert_eq!(by_name(&who("", "", &[]), Class::Overhead, 0).0, Role::Overhead);
    }
}
