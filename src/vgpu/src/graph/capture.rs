//! Stream capture: work submitted to a capturing stream becomes a node of a graph. Other streams
//! join by waiting for an event of the capture, and must be joined back before it ends. What could
//! not be replayed is refused, and the capture is then lost.

use super::{AllocParams, Edge, Graphs, Task, Work};
use crate::config;
use crate::engine::{HostCall, Op, Touches};
use crate::error::*;
use crate::state::{Map, State, thread};
use std::collections::HashSet;
use weir_cuda::CUgraphEdgeData;

/// `CU_STREAM_CAPTURE_MODE_*`.
const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;
/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`: kernel nodes remember the priority of the stream.
const PRIORITY: u32 = 8;

/// A capture under way.
pub(crate) struct Capture {
    /// The context of the stream that began it.
    pub(crate) ctx: u64,
    pub(crate) graph: u64,
    /// The stream that began it and must end it.
    pub(crate) origin: u64,
    pub(crate) thread: u64,
    pub(crate) mode: u32,
    /// A rule was broken: it can only be ended, without a graph.
    pub(crate) invalid: bool,
    /// The graph belongs to the job, which began the capture into it.
    into: bool,
    pub(crate) streams: Map<Joined>,
}

/// A stream that takes part.
#[derive(Default)]
pub(crate) struct Joined {
    /// What its next node comes after.
    pub(crate) frontier: Vec<Edge>,
    /// The frontier as last returned to the job, which may read it until the stream is used again.
    pub(crate) returned_nodes: Vec<u64>,
    pub(crate) returned_data: Vec<CUgraphEdgeData>,
}

impl Joined {
    fn extend(&mut self, edges: impl IntoIterator<Item = Edge>) {
        for edge in edges {
            if !self.frontier.iter().any(|e| e.from == edge.from) {
                self.frontier.push(edge);
            }
        }
    }
}

impl Graphs {
    /// A capture that nobody can end any more.
    pub(super) fn forget_capture(&mut self, handle: u64) {
        if let Some(gone) = self.captures.remove(&handle)
            && let Some(graph) = self.known.get_mut(&gone.graph)
        {
            graph.captures = graph.captures.saturating_sub(1);
        }
    }

    fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
    }
}

impl State {
    /// The capture that a stream takes part in, broken or not.
    pub(crate) fn capture_of(&self, stream: u64) -> Option<u64> {
        let capture = self.engine.streams.get(&stream)?.capture?;
        self.graphs.captures.contains_key(&capture).then_some(capture)
    }

    /// The capture that a stream adds to; a broken one is refused.
    pub(crate) fn active_capture(&self, stream: u64) -> R<Option<u64>> {
        match self.capture_of(stream) {
            Some(c) if self.graphs.captures[&c].invalid => Err(CAPTURE_INVALIDATED),
            other => Ok(other),
        }
    }

    fn join_capture(&mut self, stream: u64, capture: u64, edges: Vec<Edge>) {
        if let Some(s) = self.engine.streams.get_mut(&stream) {
            s.capture = Some(capture);
        }
        if let Some(capture) = self.graphs.captures.get_mut(&capture) {
            capture.streams.entry(stream).or_default().extend(edges);
        }
    }

    /// Captures of blocking streams that use of this stream would silently wait for.
    fn implicit_captures(&self, stream: u64) -> Vec<u64> {
        if self.graphs.captures.is_empty() {
            return Vec::new();
        }
        let Some(ctx) = self.engine.context_of(stream) else { return Vec::new() };
        if self.contexts.get(&ctx).is_none_or(|c| c.legacy != stream) {
            return Vec::new();
        }
        let blocking = self.engine.streams.values().filter(|s| s.ctx == ctx && !s.independent);
        blocking.filter_map(|s| s.capture).filter(|c| self.graphs.captures.contains_key(c)).collect()
    }

    /// Whether querying this stream is impossible while a blocking stream captures.
    pub(crate) fn implicit_capture(&self, stream: u64) -> R {
        if self.implicit_captures(stream).is_empty() { Ok(()) } else { Err(CAPTURE_IMPLICIT) }
    }

    /// Work in the legacy stream while a blocking stream captures is an implicit dependency.
    pub(crate) fn refuse_implicit_capture(&mut self, stream: u64) -> R {
        let hit = self.implicit_captures(stream);
        for &capture in &hit {
            self.graphs.invalidate(capture);
        }
        if hit.is_empty() { Ok(()) } else { Err(CAPTURE_IMPLICIT) }
    }

    /// A call that might wait, while a capture forbids it: the capture is lost.
    pub(crate) fn refuse_unsafe_call(&mut self) -> R {
        if self.graphs.captures.is_empty() || config::fault("sync_under_capture") {
            return Ok(());
        }
        let (me, mode) = (thread::id(), thread::capture_mode());
        if mode == RELAXED {
            return Ok(());
        }
        let mut hit = false;
        for capture in self.graphs.captures.values_mut() {
            let own = capture.thread == me && capture.mode != RELAXED;
            let foreign = mode == GLOBAL && capture.thread != me && capture.mode == GLOBAL;
            if own || foreign {
                capture.invalid = true;
                hit = true;
            }
        }
        if hit { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Waiting for a capturing stream, or querying whether it is done, breaks its capture.
    pub(crate) fn refuse_sync_of_capturing(&mut self, stream: u64) -> R {
        if self.graphs.captures.is_empty() || config::fault("sync_under_capture") {
            return Ok(());
        }
        if let Some(capture) = self.active_capture(stream)? {
            self.graphs.invalidate(capture);
            return Err(CAPTURE_UNSUPPORTED);
        }
        self.refuse_implicit_capture(stream)
    }

    /// A stream that was joined back may go while its capture goes on; one that was not breaks it.
    pub(crate) fn leave_capture(&mut self, stream: u64) {
        let Some(handle) = self.capture_of(stream).filter(|_| !config::fault("joined_stream_stays")) else { return };
        let Some(capture) = self.graphs.captures.get(&handle) else { return };
        if capture.invalid || capture.origin == stream {
            return;
        }
        let others = capture.streams.iter().filter(|(other, _)| **other != stream);
        let reached = self.before(others.flat_map(|(_, s)| s.frontier.iter().map(|e| e.from)).collect());
        let joined = |s: &Joined| s.frontier.iter().all(|e| reached.contains(&e.from));
        if !capture.streams.get(&stream).is_some_and(joined) {
            return;
        }
        if let Some(capture) = self.graphs.captures.get_mut(&handle) {
            capture.streams.remove(&stream);
        }
        if let Some(s) = self.engine.streams.get_mut(&stream) {
            s.capture = None;
        }
    }

    /// A call about all streams of a context breaks the captures of those that capture.
    pub(crate) fn refuse_captures_in(&mut self, ctx: u64) -> R {
        if config::fault("sync_under_capture") {
            return Ok(());
        }
        let streams = self.engine.streams.values().filter(|s| s.ctx == ctx);
        let hit: Vec<u64> =
            streams.filter_map(|s| s.capture).filter(|c| self.graphs.captures.contains_key(c)).collect();
        for &capture in &hit {
            self.graphs.invalidate(capture);
        }
        if hit.is_empty() { Ok(()) } else { Err(CAPTURE_UNSUPPORTED) }
    }

    /// A context cannot wait for an event of a capture: one under way is lost.
    pub(crate) fn refuse_captured_event(&mut self, event: u64) -> R {
        let Some((capture, _)) = self.engine.events.get(&event).and_then(|e| e.captured.clone()) else { return Ok(()) };
        if !self.graphs.captures.contains_key(&capture) {
            return Err(CAPTURED_EVENT);
        }
        self.graphs.invalidate(capture);
        Err(CAPTURE_UNSUPPORTED)
    }

    /// Begins a capture, into a new graph or one of the job.
    pub(crate) fn begin_capture(&mut self, stream: u64, mode: u32, into: Option<(u64, Vec<Edge>)>) -> R {
        if mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        let ctx = self.engine.context_of(stream).ok_or(INVALID_HANDLE)?;
        if self.contexts.get(&ctx).is_some_and(|c| c.legacy == stream) {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if self.capture_of(stream).is_some() {
            return Err(ILLEGAL_STATE);
        }
        let given = into.is_some();
        let (graph, edges) = match into {
            Some((graph, edges)) => {
                self.graph(graph)?;
                self.check_edges(graph, &edges)?;
                (graph, edges)
            }
            None => (self.make_graph(), Vec::new()),
        };
        self.graph_mut(graph)?.captures += 1;
        let handle = self.fresh();
        let capture = Capture {
            ctx,
            graph,
            origin: stream,
            thread: thread::id(),
            mode,
            invalid: false,
            into: given,
            streams: Map::default(),
        };
        self.graphs.captures.insert(handle, capture);
        self.join_capture(stream, handle, edges);
        Ok(())
    }

    /// Ends a capture: the graph, or why there is none. `WRONG_THREAD` and `UNMATCHED` end nothing.
    pub(crate) fn end_capture(&mut self, stream: u64) -> R<u64> {
        let handle = self.capture_of(stream).ok_or(ILLEGAL_STATE)?;
        let capture = self.graphs.captures.get(&handle).ok_or(ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread::id() {
            return Err(CAPTURE_WRONG_THREAD);
        }
        let verdict = if capture.invalid {
            Err(CAPTURE_INVALIDATED)
        } else if self.all_joined(capture) {
            Ok(capture.graph)
        } else {
            Err(CAPTURE_UNJOINED)
        };
        self.close_capture(handle, verdict.is_ok());
        verdict
    }

    /// Whether everything that other streams captured comes before the end of the first stream.
    fn all_joined(&self, capture: &Capture) -> bool {
        let Some(end) = capture.streams.get(&capture.origin) else { return false };
        let reached = self.before(end.frontier.iter().map(|e| e.from).collect());
        capture.streams.values().all(|s| s.frontier.iter().all(|e| reached.contains(&e.from)))
    }

    /// Nodes and all that they come after.
    fn before(&self, mut left: Vec<u64>) -> HashSet<u64> {
        let mut reached = HashSet::new();
        while let Some(at) = left.pop() {
            if reached.insert(at)
                && let Some(node) = self.graphs.nodes.get(&at)
            {
                left.extend(node.edges.iter().map(|e| e.from));
            }
        }
        reached
    }

    fn close_capture(&mut self, handle: u64, keep_graph: bool) {
        let Some(capture) = self.graphs.captures.remove(&handle) else { return };
        for stream in capture.streams.keys() {
            if let Some(s) = self.engine.streams.get_mut(stream) {
                s.capture = None;
            }
        }
        if let Some(graph) = self.graphs.known.get_mut(&capture.graph) {
            graph.captures = graph.captures.saturating_sub(1);
        }
        if !keep_graph && !capture.into {
            self.drop_graph(capture.graph);
        }
    }

    /// Adds work to the graph that a stream captures.
    pub(crate) fn capture_op(&mut self, stream: u64, label: &'static str, op: Op, touches: Touches) -> R {
        let Some(capture) = self.active_capture(stream)? else {
            if let Some(s) = self.engine.streams.get_mut(&stream) {
                s.capture = None;
            }
            return self.enqueue(stream, label, op, touches).map(|_| ());
        };
        let Some(task) = self.task_of(&op) else {
            self.graphs.invalidate(capture);
            return Err(CAPTURE_UNSUPPORTED);
        };
        let work = if matches!(task, Task::Record(_)) { None } else { Some(Work { label, op, touches }) };
        self.capture_node(stream, capture, task, work).map(|_| ())
    }

    /// Adds a node behind a stream's frontier, and makes it the frontier.
    pub(crate) fn capture_node(&mut self, stream: u64, capture: u64, task: Task, work: Option<Work>) -> R<u64> {
        let (ctx, priority) = self.engine.streams.get(&stream).map_or((0, 0), |s| (s.ctx, s.priority));
        let known = self.graphs.captures.get(&capture).ok_or(CAPTURE_INVALIDATED)?;
        let (graph, joined) = (known.graph, known.streams.get(&stream).ok_or(CAPTURE_INVALIDATED)?);
        let edges = joined.frontier.clone();
        let is_kernel = matches!(task, Task::Kernel(_));
        let node = self.add_node(graph, edges, ctx, task, work)?;
        if is_kernel {
            let mut value = [0; 64];
            value[..4].copy_from_slice(&priority.to_ne_bytes());
            self.node_mut(node)?.attributes.insert(PRIORITY, value);
        }
        if let Some(joined) = self.graphs.captures.get_mut(&capture).and_then(|c| c.streams.get_mut(&stream)) {
            joined.frontier = vec![Edge::plain(node)];
        }
        Ok(node)
    }

    /// `cuEventRecord`: true if the stream captures, and the event now stands for its frontier.
    pub(crate) fn capture_record(&mut self, stream: u64, event: u64) -> R<bool> {
        let capture = self.active_capture(stream)?;
        let captured = match capture.and_then(|c| self.graphs.captures.get(&c)).and_then(|c| c.streams.get(&stream)) {
            Some(joined) => capture.map(|c| (c, joined.frontier.iter().map(|e| e.from).collect())),
            None => None,
        };
        if captured.is_none() {
            self.refuse_implicit_capture(stream)?;
        }
        let known = self.engine.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        known.captured = captured;
        Ok(known.captured.is_some())
    }

    /// `cuStreamWaitEvent`: true if the event was captured, and the stream now takes part.
    pub(crate) fn capture_wait(&mut self, stream: u64, event: u64) -> R<bool> {
        let known = self.engine.events.get(&event).ok_or(INVALID_HANDLE)?;
        let (captured, recorded) = (known.captured.clone(), known.recorded.is_some());
        let own = self.active_capture(stream)?;
        if own.is_none() {
            self.refuse_implicit_capture(stream)?;
        }
        let alive = captured.as_ref().filter(|(c, _)| self.graphs.captures.contains_key(c)).cloned();
        match (own, alive) {
            (Some(own), Some((theirs, _))) if own != theirs => {
                self.graphs.invalidate(own);
                self.graphs.invalidate(theirs);
                Err(CAPTURE_MERGE)
            }
            (_, Some((theirs, nodes))) => {
                if self.graphs.captures.get(&theirs).is_some_and(|c| c.invalid) {
                    return Err(CAPTURE_INVALIDATED);
                }
                let ctx = self.engine.context_of(stream).ok_or(INVALID_HANDLE)?;
                if self.contexts.get(&ctx).is_some_and(|c| c.legacy == stream) {
                    self.graphs.invalidate(theirs);
                    return Err(CAPTURE_UNSUPPORTED);
                }
                self.join_capture(stream, theirs, nodes.into_iter().map(Edge::plain).collect());
                Ok(true)
            }
            // An event from before, or from a capture that is over, lies outside this one.
            (Some(own), None) if recorded || captured.is_some() => {
                self.graphs.invalidate(own);
                Err(CAPTURE_ISOLATION)
            }
            (Some(_), None) => Ok(true),
            (None, None) if captured.is_some() => Err(CAPTURED_EVENT),
            (None, None) => Ok(false),
        }
    }

    /// A wait for work outside the capture (`CU_EVENT_WAIT_EXTERNAL`): a node that waits at launch.
    pub(crate) fn capture_external_wait(&mut self, stream: u64, event: u64) -> R {
        let capture = self.active_capture(stream)?.ok_or(INVALID_VALUE)?;
        self.capture_node(stream, capture, Task::Wait(event), None).map(|_| ())
    }

    /// Whether an event was last recorded in a capture: it cannot be waited for or queried.
    pub(crate) fn event_is_captured(&self, event: u64) -> bool {
        self.engine.events.get(&event).is_some_and(|e| e.captured.is_some())
    }

    /// `cuMemAllocAsync` in a capturing stream: the address of a new allocation node.
    pub(crate) fn capture_alloc(&mut self, stream: u64, bytes: u64, pool: u64) -> R<u64> {
        let capture = self.active_capture(stream)?.ok_or(ILLEGAL_STATE)?;
        let ctx = self.engine.context_of(stream).ok_or(INVALID_HANDLE)?;
        let device = self.pool(pool)?.device;
        let params = AllocParams::on_device(device, bytes);
        let graph = self.graphs.captures.get(&capture).ok_or(CAPTURE_INVALIDATED)?.graph;
        let addr = self.graph_memory_reserve(graph, ctx, device, bytes)?;
        self.capture_node(stream, capture, Task::Alloc(params.at(addr)), None)?;
        Ok(addr)
    }

    /// `cuMemFreeAsync`: true if the stream captures, and a free node was added.
    pub(crate) fn capture_free(&mut self, stream: u64, addr: u64) -> R<bool> {
        let Some(capture) = self.active_capture(stream)? else { return Ok(false) };
        let graph = self.graphs.captures.get(&capture).ok_or(CAPTURE_INVALIDATED)?.graph;
        self.graph_memory_add_free(graph, addr)?;
        self.capture_node(stream, capture, Task::Free(addr), None)?;
        Ok(true)
    }

    /// `cuStreamUpdateCaptureDependencies`.
    pub(crate) fn set_frontier(&mut self, stream: u64, edges: Vec<Edge>, replace: bool) -> R {
        let capture = self.active_capture(stream)?.ok_or(ILLEGAL_STATE)?;
        let graph = self.graphs.captures.get(&capture).ok_or(CAPTURE_INVALIDATED)?.graph;
        self.check_edges(graph, &edges)?;
        let joined = self.graphs.captures.get_mut(&capture).and_then(|c| c.streams.get_mut(&stream));
        let joined = joined.ok_or(CAPTURE_INVALIDATED)?;
        if replace {
            joined.frontier.clear();
        }
        joined.extend(edges);
        Ok(())
    }

    /// What a captured piece of work is as a node; none for what cannot be captured.
    fn task_of(&self, op: &Op) -> Option<Task> {
        match op {
            Op::Nothing => Some(Task::Empty),
            Op::Copy { source, target, extent } => Some(self.describe_copy(source, *target, *extent)),
            Op::Set { target, extent, value, unit } => Some(Task::describe_set(*target, *extent, *value, *unit)),
            Op::Kernel(launch) => Some(Self::describe_launch(launch)),
            Op::Host { call: HostCall::Function(function), data } => Some(Task::Host(*function, *data)),
            Op::Record { event } => Some(Task::Record(*event)),
            Op::WriteValue { .. } | Op::WaitValue { .. } => Some(Task::Batch),
            // A callback receives errors, which a graph cannot do; pool memory lives outside.
            Op::Host { .. }
            | Op::Allocated { .. }
            | Op::Freed { .. }
            | Op::FreedLinear { .. }
            | Op::Publish { .. }
            | Op::GraphMemory { .. } => None,
        }
    }
}
