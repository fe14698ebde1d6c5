//! What memory is for: parameters, optimizer state, gradients, activations, workspaces, inputs. Told from operation
//! names, Python lines, regions and how long memory lives; each answer comes with the rule that gave it.

use weir_journal::{Class, layout::HOST_DEVICE};

use crate::names::Who;
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
const BY_LINE: [(&[&str], &[&str], Role, &str); 3] = [
    (
        &["/optimizers/", "/optimizer_v2/", "/optimizer/"],
        &["apply_gradients", "build_slots"],
        Role::Optimizer,
        "called from an optimizer",
    ),
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
    /// Asked for by a library that it called: cuBLAS for its handle, say.
    Library,
}

/// Whether XLA asks, once for all operations of what it compiled.
pub fn is_compiled(who: &Who) -> bool {
    who.op.region == "xla"
}

/// Told from the region's name.
pub fn region(who: &Who) -> Region {
    match who.op.region.as_str() {
        "library" => Region::Library,
        // A variable that somebody still reads gets its new value in memory that was asked for as temporary, and keeps it.
        "temp" if who.op.name.contains("Assign") && who.op.name.contains("VariableOp") => Region::Tensor,
        "temp" | "scratch" | "workspace" => Region::Temporary,
        _ => Region::Tensor,
    }
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
        Region::Library => return (Role::Workspaces, "asked for by a library that an operation called"),
        Region::Temporary => return (Role::Workspaces, "the region is temporary"),
        Region::Tensor => {}
    }
    // TensorFlow's graph optimizer leaves its own name in those of the operations that it makes: it holds nothing.
    let op = who.op.name.to_ascii_lowercase().replace("layoutoptimizer", "").replace("arithmeticoptimizer/", "");
    let by_op = BY_OP.iter().find(|(parts, ..)| parts.iter().any(|part| op.contains(part)));
    // A variable's value, its slot and a constant come from the same operations: the Python lines tell them apart.
    let lined = BY_LINE.iter().find(|(files, functions, ..)| {
        who.python.lines.iter().any(|line| {
            files.iter().any(|part| line.file.contains(part)) || functions.contains(&line.function.as_str())
        })
    });
    let sure = by_op.filter(|(_, role, _)| matches!(role, Role::Gradients | Role::Optimizer | Role::Workspaces));
    let lined = lined.map(|(.., role, rule)| (*role, *rule));
    let named = |found: &(_, Role, &'static str)| (found.1, found.2);
    if let Some(ruling) = sure.map(named).or(lined).or(by_op.map(named)) {
        return ruling;
    }
    match class {
        Class::Device if who.is_nameless() => {
            (Role::Workspaces, "taken straight from the driver by no operation: a library's own")
        }
        _ if who.op.region == "output" || !op.is_empty() => {
            (Role::Activations, "the result of an operation of the forward pass")
        }
        _ => (Role::Other, "nothing tells"),
    }
}

/// The role of an owner: names first, then how long its memory lives.
pub fn of(owner: &Owner, steps: &Steps) -> Ruling {
    let (role, rule) = by_name(&owner.who, owner.class, owner.device);
    if role != Role::Activations || steps.seen < 4 || steps.ticks == 0 {
        return (role, rule);
    }
    // What is made once, is never freed and is older than many steps is kept by the model, whatever made it.
    let constant = owner.frees == 0 && owner.blocks > 0 && owner.ends[crate::survey::BUCKETS / 4] == owner.bytes as i64;
    if constant && owner.bytes > 0 {
        return (Role::Parameters, "made before the steps began and never freed");
    }
    (role, rule)
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
    fn names_tell_roles() {
        let keras = "/v/site-packages/keras/src";
        for (op, region, file, function, role) in [
            ("StatefulPartitionedCall/gradient_tape/model/conv/Conv2DBackpropInput", "output", "", "", Role::Gradients),
            ("StatefulPartitionedCall/model/conv1/Conv2D", "output", "", "", Role::Activations),
            ("StatefulPartitionedCall/model/conv1/Conv2D", "temp", "", "", Role::Workspaces),
            ("Conv2D", "library", "", "", Role::Workspaces),
            ("StatefulPartitionedCall/AssignSubVariableOp_3", "temp", "", "", Role::Parameters),
            ("adam/mul_3", "output", "", "", Role::Optimizer),
            ("model/conv/Conv2D-0-TransposeNCHWToNHWC-LayoutOptimizer", "output", "", "", Role::Activations),
            ("ArithmeticOptimizer/ReorderCast_model/Cast", "output", "", "", Role::Activations),
            ("my_optimizer/mul", "output", "", "", Role::Optimizer),
            ("StatelessRandomUniformV2", "output", "", "", Role::Parameters),
            ("Fill", "output", "optimizers/base_optimizer.py", "build", Role::Optimizer),
            ("Fill", "output", "layers/layer.py", "add_weight", Role::Parameters),
            ("IteratorGetNext", "output", "", "", Role::Inputs),
            ("_EagerConst", "output", "", "", Role::Inputs),
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
