//! Graphs with memory of their own: by allocation nodes and by captured allocations, launched, launched again and
//! destroyed, freed inside or outside.

use crate::actor::{Actor, pool_properties, rounded};
use crate::driver::cu::*;
use crate::op::{Op, What};
use std::ptr::{null, null_mut};
use weir_cuda::*;

const AUTO_FREE: u64 = 1;

/// An executable graph.
pub(crate) struct Graph {
    made_of: CUgraph,
    exec: CUgraphExec,
    /// What it allocates and does not free.
    outside: Vec<u64>,
    /// A launch has allocated that, and nobody has freed it.
    out: bool,
    frees_itself: bool,
    ctx: usize,
    stream: usize,
    /// Bytes of all its allocations, in whole chunks.
    pub(crate) bytes: u64,
}

impl Actor {
    pub(crate) fn graph(&mut self, op: Op) -> bool {
        let at = op.slot as usize % self.graphs.len();
        match op.what {
            What::GraphNodes | What::GraphCapture => self.graphs[at].is_none() && self.build(at, op),
            What::GraphTrim => {
                self.must("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(0));
                true
            }
            What::GraphDestroy => self.destroy_graph(at),
            What::GraphFree => self.free_outside(at, op.other & 1 == 0),
            _ => self.launch(at, op.what == What::GraphUpload),
        }
    }

    fn build(&mut self, at: usize, op: Op) -> bool {
        let (count, inside) = (1 + u64::from(op.other) % 3, op.other & 4 == 0);
        let bytes = op.bytes.min(self.world.cap / 3);
        // A blocking stream would draw the legacy stream into the capture.
        let stream = op.stream as usize % 2;
        let (mut graph, mut exec, mut outside) = (null_mut(), null_mut(), Vec::new());
        let ctx = self.current;
        if op.what == What::GraphNodes {
            self.must("cuGraphCreate", cuGraphCreate(&raw mut graph, 0));
            let mut before: CUgraphNode = null_mut();
            for _ in 0..count {
                let mut wanted = CUDA_MEM_ALLOC_NODE_PARAMS {
                    poolProps: pool_properties(false),
                    bytesize: bytes as usize,
                    ..CUDA_MEM_ALLOC_NODE_PARAMS::default()
                };
                let (from, number) = if before.is_null() { (null(), 0) } else { (&raw const before, 1) };
                let mut node = null_mut();
                let code = cuGraphAddMemAllocNode(&raw mut node, graph, from, number, &raw mut wanted);
                self.must("cuGraphAddMemAllocNode", code);
                if inside {
                    let mut free = null_mut();
                    let code = cuGraphAddMemFreeNode(&raw mut free, graph, &raw const node, 1, wanted.dptr);
                    self.must("cuGraphAddMemFreeNode", code);
                    before = free;
                } else {
                    outside.push(wanted.dptr);
                    before = node;
                }
            }
        } else {
            let home = self.stream(ctx, stream);
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
            self.must("cuStreamBeginCapture", cuStreamBeginCapture_v2(home, mode));
            for _ in 0..count {
                let mut ptr = 0;
                self.must("cuMemAllocAsync in a capture", cuMemAllocAsync(&raw mut ptr, bytes as usize, home));
                self.spin(ctx, stream, 100);
                if inside {
                    self.must("cuMemFreeAsync in a capture", cuMemFreeAsync(ptr, home));
                } else {
                    outside.push(ptr);
                }
            }
            self.must("cuStreamEndCapture", cuStreamEndCapture(home, &raw mut graph));
        }
        let frees_itself = op.other & 8 == 0;
        let bytes = count * rounded(bytes);
        let code = cuGraphInstantiateWithFlags(&raw mut exec, graph, if frees_itself { AUTO_FREE } else { 0 });
        if !self.taken("cuGraphInstantiate", code, 2 * bytes) {
            self.must("cuGraphDestroy", cuGraphDestroy(graph));
            return true;
        }
        self.graphs[at] = Some(Graph { made_of: graph, exec, outside, out: false, frees_itself, ctx, stream, bytes });
        true
    }

    fn launch(&mut self, at: usize, upload: bool) -> bool {
        let Some(graph) = &self.graphs[at] else { return false };
        if graph.out && !graph.frees_itself {
            return false;
        }
        let (exec, ctx, stream, bytes) = (graph.exec, graph.ctx, graph.stream, graph.bytes);
        self.enter(ctx);
        let home = self.stream(ctx, stream);
        if upload {
            self.taken("cuGraphUpload", cuGraphUpload(exec, home), 2 * bytes);
        } else if self.taken("cuGraphLaunch", cuGraphLaunch(exec, home), 2 * bytes)
            && let Some(graph) = &mut self.graphs[at]
        {
            graph.out = !graph.outside.is_empty();
        }
        true
    }

    /// Frees what the last launch has left.
    fn free_outside(&mut self, at: usize, in_order: bool) -> bool {
        let Some(graph) = &mut self.graphs[at] else { return false };
        if !std::mem::take(&mut graph.out) {
            return false;
        }
        let (outside, ctx, stream) = (graph.outside.clone(), graph.ctx, graph.stream);
        self.enter(ctx);
        let home = self.stream(ctx, stream);
        if in_order {
            self.spin(ctx, stream, 300);
        }
        for ptr in outside {
            if in_order {
                self.must("cuMemFreeAsync of graph memory", cuMemFreeAsync(ptr, home));
            } else {
                self.must("cuMemFree of graph memory", cuMemFree_v2(ptr));
            }
        }
        true
    }

    pub(crate) fn destroy_graph(&mut self, at: usize) -> bool {
        self.free_outside(at, true);
        let Some(graph) = self.graphs[at].take() else { return false };
        self.must("cuGraphExecDestroy", cuGraphExecDestroy(graph.exec));
        self.must("cuGraphDestroy", cuGraphDestroy(graph.made_of));
        true
    }

    /// The graphs of a context go before it.
    pub(crate) fn destroy_graphs_of(&mut self, ctx: usize) {
        for at in 0..self.graphs.len() {
            if self.graphs[at].as_ref().is_some_and(|graph| graph.ctx == ctx) {
                self.destroy_graph(at);
            }
        }
    }
}
