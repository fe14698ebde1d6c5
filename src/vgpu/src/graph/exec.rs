//! Executable graphs: made of a graph, launched into streams, updated in place. A launch queues its
//! nodes in one of the orders that their edges allow, by the seed's choice.

use super::{Edge, Task, Work};
use crate::config;
use crate::engine::{Clock, Op, Point, Touch, Touches};
use crate::error::*;
use crate::memory::Toucher;
use crate::state::{Map, State};
use std::collections::BTreeMap;
use weir_cuda::{CUgraphExecUpdateResult, CUgraphInstantiateResult, CUresult};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_*`.
pub(crate) const AUTO_FREE: u64 = 1;
pub(crate) const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const NODE_PRIORITY: u64 = 8;
/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE` and `CU_LAUNCH_ATTRIBUTE_PRIORITY`.
const COOPERATIVE: u32 = 2;
const PRIORITY: u32 = 8;

/// A node of an executable graph.
#[derive(Clone)]
pub(crate) struct Step {
    /// The node that it was made of.
    pub(crate) node: u64,
    pub(crate) task: Task,
    pub(crate) work: Option<Work>,
    /// Positions of the steps before it.
    edges: Vec<usize>,
    pub(crate) ctx: u64,
    pub(crate) enabled: bool,
    attributes: BTreeMap<u32, [u8; 64]>,
    /// The steps of a child graph.
    pub(super) body: Vec<Step>,
    /// The steps of each graph of a conditional node.
    pub(super) branches: Vec<Vec<Step>>,
}

/// An executable graph.
pub(crate) struct Exec {
    pub(crate) id: u32,
    graph: u64,
    pub(crate) flags: u64,
    body: Vec<Step>,
    objects: BTreeMap<u64, u32>,
    /// Where its newest launch ends.
    last: Option<(Point, Clock)>,
}

/// Why a graph cannot be instantiated, and because of which node.
pub(crate) struct Refusal {
    pub(crate) code: CUresult,
    pub(crate) result: CUgraphInstantiateResult,
    pub(crate) node: u64,
}

impl From<CUresult> for Refusal {
    fn from(code: CUresult) -> Self {
        Self { code, result: CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR, node: 0 }
    }
}

/// Why an executable graph cannot be updated: the node, and the dependency of it, that do not match.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) result: CUgraphExecUpdateResult,
    pub(crate) node: u64,
    pub(crate) from: u64,
}

fn mismatch(result: CUgraphExecUpdateResult, node: u64) -> Mismatch {
    Mismatch { result, node, from: 0 }
}

/// The step of a node, in children too.
fn find(body: &mut [Step], node: u64) -> Option<&mut Step> {
    for step in body {
        if step.node == node {
            return Some(step);
        }
        for inner in step.branches.iter_mut().chain([&mut step.body]) {
            if let Some(found) = find(inner, node) {
                return Some(found);
            }
        }
    }
    None
}

/// Every step, in children too.
fn visit(body: &[Step], with: &mut dyn FnMut(&Step)) {
    for step in body {
        with(step);
        step.branches.iter().chain([&step.body]).for_each(|inner| visit(inner, with));
    }
}

/// The steps in an order that their edges allow; children, and what a condition chooses, take the place of their node.
fn arrange(body: &[Step], random: &mut dyn FnMut() -> u64, out: &mut Vec<Step>) {
    let mut missing: Vec<usize> = body.iter().map(|s| s.edges.len()).collect();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); body.len()];
    for (at, step) in body.iter().enumerate() {
        for &from in &step.edges {
            next[from].push(at);
        }
    }
    let mut ready: Vec<usize> = (0..body.len()).filter(|&at| missing[at] == 0).collect();
    while !ready.is_empty() {
        let at = ready.swap_remove((random() % ready.len() as u64) as usize);
        if let Task::Conditional(condition) = &body[at].task {
            let branch = condition.chosen().and_then(|index| body[at].branches.get(index));
            arrange(branch.map_or(&[][..], Vec::as_slice), random, out);
        } else if body[at].body.is_empty() {
            out.push(body[at].clone());
        } else {
            arrange(&body[at].body, random, out);
        }
        for &after in &next[at] {
            missing[after] -= 1;
            if missing[after] == 0 {
                ready.push(after);
            }
        }
    }
}

impl State {
    pub(crate) fn exec(&self, handle: u64) -> R<&Exec> {
        self.graphs.execs.get(&handle).ok_or(INVALID_VALUE)
    }

    fn exec_mut(&mut self, handle: u64) -> R<&mut Exec> {
        self.graphs.execs.get_mut(&handle).ok_or(INVALID_VALUE)
    }

    fn steps(&self, graph: u64) -> R<Vec<Step>> {
        let nodes = &self.graph(graph)?.nodes;
        let position: Map<usize> = nodes.iter().enumerate().map(|(at, &n)| (n, at)).collect();
        nodes
            .iter()
            .map(|&handle| {
                let node = self.node(handle)?;
                let edges = node.edges.iter().map(|e| position.get(&e.from).copied().ok_or(INVALID_VALUE));
                let body = if let Task::Child(child) = node.task { self.steps(child)? } else { Vec::new() };
                let branches = if let Task::Conditional(condition) = &node.task {
                    condition.bodies.iter().map(|body| self.steps(*body)).collect::<R<_>>()?
                } else {
                    Vec::new()
                };
                Ok(Step {
                    node: handle,
                    task: node.task.clone(),
                    work: node.work.clone(),
                    edges: edges.collect::<R<_>>()?,
                    ctx: node.ctx,
                    enabled: true,
                    attributes: node.attributes.clone(),
                    body,
                    branches,
                })
            })
            .collect()
    }

    /// Makes an executable graph. `UPLOAD` is for the caller to do.
    pub(crate) fn instantiate(&mut self, graph: u64, flags: u64) -> Result<u64, Refusal> {
        let known = self.graph(graph)?;
        let too_many = known.execs > 0 && self.has_memory_nodes(graph);
        let device_launch = flags & DEVICE_LAUNCH != 0;
        if flags & !15 != 0 || (device_launch && flags & AUTO_FREE != 0) || known.captures > 0 || too_many {
            return Err(INVALID_VALUE.into());
        }
        let body = self.steps(graph)?;
        self.check_conditions(graph, &body)?;
        let (mut allocated, mut freed) = (Map::default(), Vec::new());
        visit(&body, &mut |step| match &step.task {
            Task::Alloc(params) => drop(allocated.insert(params.addr, step.node)),
            Task::Free(addr) => freed.push((*addr, step.node)),
            _ => {}
        });
        // Memory that a graph allocates and frees is freed after it is allocated.
        let unordered = freed.into_iter().find(|&(addr, free)| {
            let alloc = allocated.get(&addr).copied();
            let together = alloc.filter(|&a| self.node(a).map(|n| n.graph) == self.node(free).map(|n| n.graph));
            together.is_some_and(|a| !self.comes_after(free, a))
        });
        if let Some((_, node)) = unordered {
            let result = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
            return Err(Refusal { code: INVALID_VALUE, result, node });
        }
        if device_launch {
            check_device_launch(&body)?;
        }
        for &addr in allocated.keys() {
            self.graph_memory_hold(addr);
        }
        let mut objects = BTreeMap::new();
        self.collect_objects(graph, &mut objects);
        for (&object, &count) in &objects {
            self.object_hold(object, count);
        }
        self.graph_mut(graph)?.execs += 1;
        let id = self.graphs.next_id();
        let handle = self.fresh();
        let exec = Exec { id, graph, flags: flags & !UPLOAD, body, objects, last: None };
        self.graphs.execs.insert(handle, exec);
        Ok(handle)
    }

    fn collect_objects(&self, graph: u64, into: &mut BTreeMap<u64, u32>) {
        let Some(known) = self.graphs.known.get(&graph) else { return };
        for (&object, &count) in &known.objects {
            *into.entry(object).or_default() += count;
        }
        for node in known.nodes.iter().filter_map(|n| self.graphs.nodes.get(n)) {
            for inner in node.task.graphs() {
                self.collect_objects(*inner, into);
            }
        }
    }

    /// `cuGraphExecDestroy`: launches in flight go on.
    pub(crate) fn destroy_exec(&mut self, handle: u64) -> R {
        let gone = self.graphs.execs.remove(&handle).ok_or(INVALID_VALUE)?;
        if let Some(graph) = self.graphs.known.get_mut(&gone.graph) {
            graph.execs = graph.execs.saturating_sub(1);
        }
        visit(&gone.body, &mut |step| {
            if let Task::Alloc(params) = &step.task {
                self.graph_memory_let_go(params.addr);
            }
        });
        let point = gone.last.map(|(point, _)| point);
        for (object, count) in gone.objects {
            self.object_let_go(object, count, point);
        }
        self.graph_memory_sweep();
        Ok(())
    }

    /// `cuGraphUpload`: takes its place behind earlier launches, and nothing else.
    pub(crate) fn upload(&mut self, handle: u64, stream: u64) -> R {
        self.exec(handle)?;
        if let Some(capture) = self.active_capture(stream)? {
            if let Some(capture) = self.graphs.captures.get_mut(&capture) {
                capture.invalid = true;
            }
            return Err(CAPTURE_UNSUPPORTED);
        }
        self.refuse_implicit_capture(stream)?;
        self.behind_last_launch(handle, stream)?;
        let number = self.enqueue(stream, "cuGraphUpload", Op::Nothing, Touches::NONE)?;
        self.launched(handle, stream, number)
    }

    fn behind_last_launch(&mut self, handle: u64, stream: u64) -> R {
        if let Some((point, clock)) = self.exec(handle)?.last.clone() {
            self.wait_for(stream, point, &clock);
        }
        Ok(())
    }

    fn launched(&mut self, handle: u64, stream: u64, number: u64) -> R {
        let clock = self.engine.streams.get(&stream).map(|s| s.clock.clone()).unwrap_or_default();
        self.exec_mut(handle)?.last = Some(((stream, number), clock));
        Ok(())
    }

    /// `cuGraphLaunch`.
    pub(crate) fn launch_graph(&mut self, handle: u64, stream: u64) -> R {
        let flags = self.exec(handle)?.flags;
        if let Some(capture) = self.active_capture(stream)? {
            let child = self.graph_of_exec(handle)?;
            return self.capture_node(stream, capture, Task::Child(child), None).map(|_| ());
        }
        self.refuse_implicit_capture(stream)?;
        let mut steps = Vec::new();
        {
            let Self { graphs, engine, .. } = self;
            let exec = graphs.execs.get(&handle).ok_or(INVALID_VALUE)?;
            arrange(&exec.body, &mut || engine.random(), &mut steps);
        }
        for step in &steps {
            if step.ctx != 0 {
                self.usable(step.ctx)?;
            }
            if let Task::Wait(event) | Task::Record(event) = step.task
                && !self.engine.events.contains_key(&event)
            {
                return Err(INVALID_VALUE);
            }
        }
        let plan = self.graph_memory_plan(&steps, flags & AUTO_FREE != 0)?;
        let mut touches = Vec::with_capacity(steps.len());
        for step in &steps {
            touches.push(self.renew(stream, step)?);
        }
        self.graph_memory_take(&plan, stream)?;
        self.behind_last_launch(handle, stream)?;
        let mut number = self.enqueue(stream, "cuGraphLaunch", Op::Nothing, Touches::NONE)?;
        for &addr in &plan.free_first {
            number = self.graph_memory_queue(stream, addr, false)?;
        }
        for (step, touches) in steps.into_iter().zip(touches) {
            number = self.queue_step(stream, step, touches)?;
        }
        self.graph_memory_flies(&plan, (stream, number));
        self.launched(handle, stream, number)
    }

    fn queue_step(&mut self, stream: u64, step: Step, touches: Touches) -> R<u64> {
        match (step.task, step.work) {
            (Task::Alloc(params), _) => self.graph_memory_queue(stream, params.addr, true),
            (Task::Free(addr), _) => self.graph_memory_queue(stream, addr, false),
            (Task::Wait(event), _) => {
                if let Some(e) = self.engine.events.get(&event)
                    && let Some(point) = e.recorded
                {
                    let clock = e.clock.clone();
                    self.wait_for(stream, point, &clock);
                }
                self.enqueue(stream, "event wait node of cuGraphLaunch", Op::Nothing, Touches::NONE)
            }
            (Task::Record(event), _) => {
                let op = Op::Record { event };
                let number = self.enqueue(stream, "event record node of cuGraphLaunch", op, Touches::NONE)?;
                let clock = self.engine.streams.get(&stream).map(|s| s.clock.clone()).unwrap_or_default();
                if let Some(e) = self.engine.events.get_mut(&event) {
                    e.recorded = Some((stream, number));
                    e.clock = clock;
                    e.time = None;
                    e.captured = None;
                }
                Ok(number)
            }
            (_, Some(work)) if step.enabled => self.enqueue(stream, work.label, work.op, touches),
            _ => self.enqueue(stream, "empty node of cuGraphLaunch", Op::Nothing, Touches::NONE),
        }
    }

    /// What a step touches now. A node keeps addresses: whatever is allocated or mapped there at the launch is meant, and
    /// nothing there is a violation.
    fn renew(&mut self, stream: u64, step: &Step) -> R<Touches> {
        let Some(work) = step.work.as_ref().filter(|_| step.enabled) else { return Ok(Touches::NONE) };
        let Touches::Known(old) = &work.touches else { return Ok(work.touches.clone()) };
        let (who, mut list) = match &work.op {
            Op::Kernel(launch) => (Toucher::Kernel(step.ctx), self.touched_again(step.ctx, launch)),
            _ => (Toucher::Copier, Vec::new()),
        };
        // An address that a kernel gets means the whole of what is there now, which may be smaller than what was there before.
        let again = list.clone();
        let reached = |t: &Touch| again.iter().any(|now| now.addr < t.addr + t.len && t.addr < now.addr + now.len);
        for touch in old.iter().filter(|touch| !reached(touch)) {
            let start = list.len();
            if self.touch(&mut list, touch.addr, touch.len, touch.write, who).is_ok() && list.len() > start {
                continue;
            }
            list.truncate(start);
            list.push(*touch);
            // An array has no address of its own, only bytes that are still there or not.
            let array = self.extent(touch.addr).is_none() && self.still(touch).is_ok();
            if array || config::fault("use_after_free") {
                continue;
            }
            let what = format!(
                "cuGraphLaunch in stream {stream:#x}: {} touches {:#x}+{}, where there is nothing that it may touch",
                work.label, touch.addr, touch.len
            );
            let ctx = self.engine.context_of(stream).unwrap_or(step.ctx);
            self.violation(ctx, &what)?;
        }
        Ok(Touches::Known(list))
    }

    /// A graph like the one that an executable graph was made of, as a child for a capture.
    fn graph_of_exec(&mut self, handle: u64) -> R<u64> {
        let body = self.exec(handle)?.body.clone();
        let mut only_here = false;
        visit(&body, &mut |s| only_here |= matches!(s.task, Task::Alloc(_) | Task::Free(_) | Task::Conditional(_)));
        if only_here {
            return Err(INVALID_VALUE);
        }
        self.graph_of_steps(body)
    }

    fn graph_of_steps(&mut self, body: Vec<Step>) -> R<u64> {
        let graph = self.make_graph();
        let mut made = Vec::with_capacity(body.len());
        let mut edges = Vec::with_capacity(body.len());
        for step in body {
            let (mut task, mut work) = (step.task, step.work);
            if matches!(task, Task::Child(_)) {
                task = Task::Child(self.graph_of_steps(step.body)?);
            }
            if !step.enabled {
                (task, work) = (Task::Empty, None);
            }
            let node = self.add_node(graph, Vec::new(), step.ctx, task, work)?;
            self.node_mut(node)?.attributes = step.attributes;
            made.push(node);
            edges.push(step.edges);
        }
        for (at, from) in edges.into_iter().enumerate() {
            let plain = from.into_iter().map(|f| Edge::plain(made[f])).collect();
            self.node_mut(made[at])?.edges = plain;
        }
        Ok(graph)
    }

    /// New parameters for a step; what its node is stays as it was.
    pub(crate) fn set_step(&mut self, handle: u64, node: u64, ctx: u64, task: Task, work: Option<Work>) -> R {
        self.node(node)?;
        let flags = self.exec(handle)?.flags;
        let step = find(&mut self.exec_mut(handle)?.body, node).ok_or(INVALID_VALUE)?.clone();
        let new = Step { task, work, ctx, ..step.clone() };
        self.compatible(&step, &new, flags, true).map_err(|_| INVALID_VALUE)?;
        *find(&mut self.exec_mut(handle)?.body, node).ok_or(INVALID_VALUE)? = new;
        Ok(())
    }

    /// `cuGraphExecChildGraphNodeSetParams`.
    pub(crate) fn set_child_step(&mut self, handle: u64, node: u64, child: u64) -> R {
        self.node(node)?;
        let flags = self.exec(handle)?.flags;
        let fresh = self.steps(child)?;
        let step = find(&mut self.exec_mut(handle)?.body, node).ok_or(INVALID_VALUE)?;
        if !matches!(step.task, Task::Child(_)) {
            return Err(INVALID_VALUE);
        }
        let mut body = step.body.clone();
        self.update_body(&mut body, &fresh, flags).map_err(|_| INVALID_VALUE)?;
        find(&mut self.exec_mut(handle)?.body, node).ok_or(INVALID_VALUE)?.body = body;
        Ok(())
    }

    /// Enables or queries a step; only kernels, copies and memsets can be switched.
    pub(crate) fn switch_step(&mut self, handle: u64, node: u64, enable: Option<bool>) -> R<bool> {
        self.node(node)?;
        let step = find(&mut self.exec_mut(handle)?.body, node).ok_or(INVALID_VALUE)?;
        if !matches!(step.task, Task::Kernel(_) | Task::Copy(_) | Task::Set(_)) {
            return Err(INVALID_VALUE);
        }
        step.enabled = enable.unwrap_or(step.enabled);
        Ok(step.enabled)
    }

    /// `cuGraphExecUpdate`.
    pub(crate) fn update_exec(&mut self, handle: u64, graph: u64) -> Result<(), Mismatch> {
        use CUgraphExecUpdateResult as U;
        let bad = |_: CUresult| mismatch(U::CU_GRAPH_EXEC_UPDATE_ERROR, 0);
        let flags = self.exec(handle).map_err(bad)?.flags;
        let mut body = self.exec(handle).map_err(bad)?.body.clone();
        let fresh = self.steps(graph).map_err(bad)?;
        self.update_body(&mut body, &fresh, flags)?;
        self.exec_mut(handle).map_err(bad)?.body = body;
        Ok(())
    }

    /// Pairs the steps by their last nodes and the order of edges, and takes over parameters.
    fn update_body(&self, body: &mut [Step], fresh: &[Step], flags: u64) -> Result<(), Mismatch> {
        use CUgraphExecUpdateResult as U;
        let changed = |node: u64| mismatch(U::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node);
        if body.len() != fresh.len() {
            return Err(changed(0));
        }
        let (old_ends, new_ends) = (ends(body), ends(fresh));
        if old_ends.len() != new_ends.len() {
            return Err(changed(new_ends.last().map_or(0, |&at| fresh[at].node)));
        }
        let mut pair: Vec<Option<usize>> = vec![None; fresh.len()];
        let mut taken = vec![false; body.len()];
        let mut left: Vec<(usize, usize)> = old_ends.into_iter().zip(new_ends).collect();
        for &(old, new) in &left {
            pair[new] = Some(old);
            taken[old] = true;
        }
        while let Some((old, new)) = left.pop() {
            let (was, now) = (&body[old], &fresh[new]);
            if was.edges.len() != now.edges.len() {
                return Err(changed(now.node));
            }
            for (&old_from, &new_from) in was.edges.iter().zip(&now.edges) {
                match pair[new_from] {
                    Some(known) if known == old_from => {}
                    None if !taken[old_from] => {
                        pair[new_from] = Some(old_from);
                        taken[old_from] = true;
                        left.push((old_from, new_from));
                    }
                    _ => return Err(Mismatch { from: fresh[new_from].node, ..changed(now.node) }),
                }
            }
        }
        for (new, old) in pair.into_iter().enumerate() {
            let (now, old) = (&fresh[new], old.ok_or_else(|| changed(fresh[new].node))?);
            self.compatible(&body[old], now, flags, false).map_err(|result| mismatch(result, now.node))?;
            let mut inner = std::mem::take(&mut body[old].body);
            if matches!(now.task, Task::Child(_)) {
                self.update_body(&mut inner, &now.body, flags)?;
            }
            let mut branches = std::mem::take(&mut body[old].branches);
            for (inner, fresh) in branches.iter_mut().zip(&now.branches) {
                self.update_body(inner, fresh, flags)?;
            }
            let was = &mut body[old];
            (was.body, was.branches) = (inner, branches);
            if !matches!(now.task, Task::Child(_)) {
                (was.task, was.work) = (now.task.clone(), now.work.clone());
            }
            was.attributes = now.attributes.clone();
        }
        Ok(())
    }

    /// Whether a step may take over the parameters of another.
    fn compatible(&self, was: &Step, now: &Step, flags: u64, alone: bool) -> Result<(), CUgraphExecUpdateResult> {
        use CUgraphExecUpdateResult as U;
        if was.task.kind() != now.task.kind() {
            return Err(U::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
        }
        let parameters = Err(U::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
        match (&was.task, &now.task) {
            (Task::Kernel(_), Task::Kernel(_)) => {
                if was.ctx != now.ctx {
                    return Err(U::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
                }
                let differs = |id: u32| was.attributes.get(&id) != now.attributes.get(&id);
                if differs(COOPERATIVE) || (flags & NODE_PRIORITY != 0 && differs(PRIORITY)) {
                    return Err(U::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
                }
            }
            (Task::Copy(a), Task::Copy(b)) => {
                let (a, b) = (a.get(), b.get());
                let kinds = (a.srcMemoryType, a.dstMemoryType) == (b.srcMemoryType, b.dstMemoryType);
                let flat = |p: &weir_cuda::CUDA_MEMCPY3D| p.Height <= 1 && p.Depth <= 1;
                if was.ctx != now.ctx || !kinds || (alone && !(flat(a) && flat(b))) || !self.same_places(was, now) {
                    return parameters;
                }
            }
            (Task::Set(a), Task::Set(b)) => {
                let plane = |p: &weir_cuda::CUDA_MEMSET_NODE_PARAMS_v1| (p.width, p.height, p.pitch, p.elementSize);
                let flat = a.height <= 1 && b.height <= 1;
                if was.ctx != now.ctx || (!flat && plane(a) != plane(b)) || !self.same_places(was, now) {
                    return parameters;
                }
            }
            (Task::Conditional(a), Task::Conditional(b)) if !a.same(b) => return parameters,
            (Task::Alloc(_) | Task::Free(_), _) => return Err(U::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED),
            _ => {}
        }
        Ok(())
    }

    /// Whether the operands of a copy or memset are where they were: on which device, or the host.
    fn same_places(&self, was: &Step, now: &Step) -> bool {
        let place = |addr: u64| self.heap_at(addr).or_else(|| self.extent(addr).and_then(|e| e.device));
        let places = |step: &Step| {
            let (source, target) = step.work.as_ref().map_or((None, None), |w| w.op.operands());
            (source.map(place), target.map(place))
        };
        places(was) == places(now)
    }
}

/// Positions of the steps that nothing comes after.
fn ends(body: &[Step]) -> Vec<usize> {
    let mut end = vec![true; body.len()];
    for from in body.iter().flat_map(|s| &s.edges) {
        end[*from] = false;
    }
    (0..body.len()).filter(|&at| end[at]).collect()
}

/// What a graph for launches from the device may contain.
fn check_device_launch(body: &[Step]) -> Result<(), Refusal> {
    use CUgraphInstantiateResult as I;
    let refuse = |result, node| Err(Refusal { code: INVALID_VALUE, result, node });
    let (mut ctx, mut useful, mut verdict) = (0, false, Ok(()));
    visit(body, &mut |step| {
        if verdict.is_err() {
            return;
        }
        match step.task {
            Task::Kernel(_) | Task::Copy(_) | Task::Set(_) => {
                useful = true;
                if ctx != 0 && step.ctx != ctx {
                    verdict = refuse(I::CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED, step.node);
                }
                ctx = step.ctx;
            }
            Task::Child(_) => {}
            _ => verdict = refuse(I::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, step.node),
        }
    });
    verdict?;
    if useful { Ok(()) } else { refuse(I::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(node: u64, edges: Vec<usize>, body: Vec<Step>) -> Step {
        Step {
            node,
            task: Task::Empty,
            work: None,
            edges,
            ctx: 0,
            enabled: true,
            attributes: BTreeMap::new(),
            body,
            branches: Vec::new(),
        }
    }

    /// A few thousand random graphs, with children: every step once, and after those it depends on.
    #[test]
    fn every_arrangement_keeps_the_edges() {
        let mut state = 0x1234_5678_9ABC_DEF1_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 3
        };
        let mut orders = std::collections::HashSet::new();
        for round in 0..2000 {
            let count = 1 + random() as usize % 12;
            let body: Vec<Step> = (0..count)
                .map(|at| {
                    let edges: Vec<usize> = (0..at).filter(|_| random() % 3 == 0).collect();
                    let inner = if random() % 5 == 0 { vec![step(100 + at as u64, vec![], vec![])] } else { vec![] };
                    step(at as u64, edges, inner)
                })
                .collect();
            let mut out = Vec::new();
            arrange(&body, &mut random, &mut out);
            let place: Vec<u64> = out.iter().map(|s| s.node % 100).collect();
            assert_eq!(place.len(), count, "round {round}");
            for (at, step) in body.iter().enumerate() {
                let position = |n: usize| place.iter().position(|&p| p == n as u64);
                assert!(step.edges.iter().all(|&from| position(from) < position(at)), "round {round}");
            }
            orders.insert(place);
        }
        assert!(orders.len() > 500, "the order is a choice");
    }
}
