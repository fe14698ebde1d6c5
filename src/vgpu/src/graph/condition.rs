//! Conditional nodes: graphs that a launch runs or leaves out, by a value. The value is the default that the handle was created
//! with, assigned at each launch, or 0. Kernels that set it compute nothing here: a loop that begins runs once.

use super::exec::Step;
use super::{Refusal, Task};
use crate::config;
use crate::error::*;
use crate::state::State;
use std::sync::Arc;
use weir_cuda::{CUDA_CONDITIONAL_NODE_PARAMS, CUgraphConditionalNodeType, CUgraphInstantiateResult};

/// A handle for a condition.
pub(crate) struct Handle {
    pub(crate) graph: u64,
    /// What each launch assigns.
    pub(crate) default: u32,
    /// A node goes by it.
    pub(crate) used: bool,
}

/// What a conditional node does.
#[derive(Clone)]
pub(crate) struct Conditional {
    pub(crate) handle: u64,
    pub(crate) kind: CUgraphConditionalNodeType,
    /// The graphs, where the job reads them.
    pub(crate) bodies: Arc<[u64]>,
    default: u32,
}

impl Conditional {
    /// Which of the graphs a launch runs.
    pub(crate) fn chosen(&self) -> Option<usize> {
        use CUgraphConditionalNodeType as T;
        if config::fault("condition_ignored") {
            return Some(0);
        }
        let index = match self.kind {
            T::CU_GRAPH_COND_TYPE_SWITCH => self.default as usize,
            _ => usize::from(self.default == 0),
        };
        (index < self.bodies.len()).then_some(index)
    }

    /// Whether one node may take over what is inside the other.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.bodies.len() == other.bodies.len()
    }
}

impl State {
    /// A conditional node of a graph, with graphs of its own that are empty.
    pub(crate) fn conditional(&mut self, graph: u64, params: &CUDA_CONDITIONAL_NODE_PARAMS) -> R<Conditional> {
        use CUgraphConditionalNodeType as T;
        let known = self.graphs.conditions.get(&params.handle).filter(|handle| !handle.used).ok_or(INVALID_VALUE)?;
        let (home, default) = (known.graph, known.default);
        let mut inside = Some(graph);
        while inside.is_some_and(|at| at != home) {
            inside = inside.and_then(|at| self.graph(at).ok()?.parent).and_then(|n| self.node(n).ok()).map(|n| n.graph);
        }
        let sizes = match params.type_ {
            T::CU_GRAPH_COND_TYPE_IF => 1..=2,
            T::CU_GRAPH_COND_TYPE_WHILE => 1..=1,
            T::CU_GRAPH_COND_TYPE_SWITCH => 1..=u32::from(u16::MAX),
            _ => return Err(INVALID_VALUE),
        };
        if inside.is_none() || !sizes.contains(&params.size) {
            return Err(INVALID_VALUE);
        }
        let bodies = (0..params.size).map(|_| self.make_graph()).collect();
        if let Some(handle) = self.graphs.conditions.get_mut(&params.handle) {
            handle.used = true;
        }
        Ok(Conditional { handle: params.handle, kind: params.type_, bodies, default })
    }

    /// What a graph with conditions must be like to be instantiated: every handle has its node, and a body contains nothing but
    /// kernels, copies, memsets, empty nodes, children and conditions.
    pub(super) fn check_conditions(&self, graph: u64, body: &[Step]) -> Result<(), Refusal> {
        use CUgraphInstantiateResult as I;
        if self.graphs.conditions.values().any(|handle| handle.graph == graph && !handle.used) {
            let result = I::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
            return Err(Refusal { code: INVALID_VALUE, result, node: 0 });
        }
        let mut left: Vec<(&Step, bool)> = body.iter().map(|step| (step, false)).collect();
        while let Some((step, conditional)) = left.pop() {
            let plain = matches!(
                step.task,
                Task::Kernel(_) | Task::Copy(_) | Task::Set(_) | Task::Empty | Task::Child(_) | Task::Conditional(_)
            );
            if conditional && !plain {
                let result = I::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
                return Err(Refusal { code: INVALID_VALUE, result, node: step.node });
            }
            left.extend(step.body.iter().map(|step| (step, conditional)));
            left.extend(step.branches.iter().flatten().map(|step| (step, true)));
        }
        Ok(())
    }
}
