//! Graphs: nodes, the edges between them, and what each node does. The topics beside it: capture of
//! streams (`capture`), executable graphs (`exec`), memory that graphs own (`memory`), parameters
//! of nodes (`task`), and user objects (`object`).

mod capture;
mod condition;
mod exec;
mod memory;
mod object;
mod task;
#[cfg(test)]
mod tests;

pub(crate) use self::capture::Capture;
pub(crate) use self::condition::{Conditional, Handle};
pub(crate) use self::exec::{Exec, Refusal, Step};
pub(crate) use self::memory::Owned;
pub(crate) use self::object::UserObject;
pub(crate) use self::task::{AllocParams, CopyParams, Task, Work};

use crate::error::*;
use crate::state::{Map, State};
use std::collections::BTreeMap;
use weir_cuda::{CUgraphEdgeData, CUresult};

/// The edge's data would be lost by a query that cannot return it.
pub(crate) const LOSSY_QUERY: CUresult = CUresult::CUDA_ERROR_LOSSY_QUERY;

/// What an edge says besides its two nodes.
pub(crate) type EdgeData = [u8; 8];

/// A dependency of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge {
    pub(crate) from: u64,
    pub(crate) data: EdgeData,
}

impl Edge {
    /// An edge that says nothing but that one node comes after the other.
    pub(crate) fn plain(from: u64) -> Self {
        Self { from, data: [0; 8] }
    }

    pub(crate) fn new(from: u64, data: CUgraphEdgeData) -> Self {
        let mut bytes = [0; 8];
        bytes[..3].copy_from_slice(&[data.from_port, data.to_port, data.type_]);
        bytes[3..].copy_from_slice(&data.reserved);
        Self { from, data: bytes }
    }

    pub(crate) fn data(&self) -> CUgraphEdgeData {
        let [from_port, to_port, type_, reserved @ ..] = self.data;
        CUgraphEdgeData { from_port, to_port, type_, reserved }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.data == [0; 8]
    }
}

/// A node of a graph.
pub(crate) struct Node {
    pub(crate) graph: u64,
    /// Its number within the graph.
    pub(crate) local: u32,
    pub(crate) task: Task,
    /// What the engine is given at a launch; nodes of memory, events and children have none.
    pub(crate) work: Option<Work>,
    pub(crate) edges: Vec<Edge>,
    /// The context that it runs in, 0 if it needs none.
    pub(crate) ctx: u64,
    pub(crate) attributes: BTreeMap<u32, [u8; 64]>,
    /// The node that it was cloned from.
    pub(crate) origin: u64,
}

/// A graph.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) id: u32,
    /// Its nodes in the order in which they were added.
    pub(crate) nodes: Vec<u64>,
    next_local: u32,
    /// The child node that contains it.
    pub(crate) parent: Option<u64>,
    /// Captures that add to it now.
    pub(crate) captures: u32,
    /// Executable graphs made of it that are alive.
    pub(crate) execs: u32,
    /// References to user objects.
    pub(crate) objects: BTreeMap<u64, u32>,
}

/// All graphs, captures and what hangs on them.
#[derive(Default)]
pub(crate) struct Graphs {
    pub(crate) known: Map<Graph>,
    pub(crate) nodes: Map<Node>,
    pub(crate) execs: Map<Exec>,
    pub(crate) captures: Map<Capture>,
    pub(crate) memory: BTreeMap<u64, Owned>,
    pub(crate) objects: Map<UserObject>,
    /// Handles of conditions.
    pub(crate) conditions: Map<Handle>,
    /// Memory that launches in flight use besides what stays allocated after them.
    pub(crate) flights: Vec<memory::Flight>,
    next_id: u32,
    /// The stream in which destructors of user objects run.
    pub(crate) destructors: u64,
}

impl Graphs {
    /// Captures of streams that are gone can never end.
    pub(crate) fn drop_context(&mut self, ctx: u64) {
        let gone: Vec<u64> = self.captures.iter().filter(|(_, c)| c.ctx == ctx).map(|(&h, _)| h).collect();
        for capture in gone {
            self.forget_capture(capture);
        }
    }

    pub(crate) fn next_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }
}

impl State {
    pub(crate) fn graph(&self, handle: u64) -> R<&Graph> {
        self.graphs.known.get(&handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn graph_mut(&mut self, handle: u64) -> R<&mut Graph> {
        self.graphs.known.get_mut(&handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn node(&self, handle: u64) -> R<&Node> {
        self.graphs.nodes.get(&handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn node_mut(&mut self, handle: u64) -> R<&mut Node> {
        self.graphs.nodes.get_mut(&handle).ok_or(INVALID_VALUE)
    }

    /// An empty graph.
    pub(crate) fn make_graph(&mut self) -> u64 {
        let handle = self.fresh();
        let id = self.graphs.next_id();
        self.graphs.known.insert(handle, Graph { id, ..Graph::default() });
        handle
    }

    /// Dependencies that a new node of a graph may have.
    pub(crate) fn check_edges(&self, graph: u64, edges: &[Edge]) -> R {
        for (at, edge) in edges.iter().enumerate() {
            let from = self.node(edge.from)?;
            let twice = edges[..at].iter().any(|e| e.from == edge.from);
            if from.graph != graph || twice {
                return Err(INVALID_VALUE);
            }
            check_data(edge, &from.task)?;
        }
        Ok(())
    }

    /// Adds a node behind `edges`.
    pub(crate) fn add_node(
        &mut self,
        graph: u64,
        edges: Vec<Edge>,
        ctx: u64,
        task: Task,
        work: Option<Work>,
    ) -> R<u64> {
        self.graph(graph)?;
        self.check_edges(graph, &edges)?;
        let handle = self.fresh();
        let owner = self.graph_mut(graph)?;
        owner.nodes.push(handle);
        let local = owner.next_local;
        owner.next_local += 1;
        for inner in task.graphs() {
            self.graph_mut(*inner)?.parent = Some(handle);
        }
        let node = Node { graph, local, task, work, edges, ctx, attributes: BTreeMap::new(), origin: 0 };
        self.graphs.nodes.insert(handle, node);
        Ok(handle)
    }

    /// Whether `node` is `ancestor` or comes after it.
    pub(crate) fn comes_after(&self, node: u64, ancestor: u64) -> bool {
        let mut seen = std::collections::HashSet::new();
        let mut left = vec![node];
        while let Some(at) = left.pop() {
            if at == ancestor {
                return true;
            }
            if seen.insert(at)
                && let Some(n) = self.graphs.nodes.get(&at)
            {
                left.extend(n.edges.iter().map(|e| e.from));
            }
        }
        false
    }

    /// Adds edges between nodes of a graph: none twice, none that closes a circle.
    pub(crate) fn add_edges(&mut self, graph: u64, edges: &[(Edge, u64)]) -> R {
        self.graph(graph)?;
        for (edge, to) in edges {
            let from = self.node(edge.from)?;
            if from.graph != graph || self.node(*to)?.graph != graph {
                return Err(INVALID_VALUE);
            }
            check_data(edge, &from.task)?;
        }
        let mut done = Vec::new();
        for (edge, to) in edges {
            let known = self.node(*to)?.edges.iter().any(|e| e.from == edge.from);
            if known || self.comes_after(edge.from, *to) {
                self.cut(&done);
                return Err(INVALID_VALUE);
            }
            self.node_mut(*to)?.edges.push(*edge);
            done.push((*edge, *to));
        }
        Ok(())
    }

    /// Removes edges that exist, with exactly these data.
    pub(crate) fn remove_edges(&mut self, graph: u64, edges: &[(Edge, u64)]) -> R {
        self.graph(graph)?;
        if !edges.is_empty() && self.has_memory_nodes(graph) {
            return Err(INVALID_VALUE);
        }
        for (at, (edge, to)) in edges.iter().enumerate() {
            let target = self.node(*to)?;
            let twice = edges[..at].iter().any(|(e, t)| e.from == edge.from && t == to);
            if target.graph != graph || twice || !target.edges.contains(edge) {
                return Err(INVALID_VALUE);
            }
        }
        self.cut(edges);
        Ok(())
    }

    fn cut(&mut self, edges: &[(Edge, u64)]) {
        for (edge, to) in edges {
            if let Some(node) = self.graphs.nodes.get_mut(to) {
                node.edges.retain(|e| e != edge);
            }
        }
    }

    /// All edges of a graph, in the order of the nodes they lead to.
    pub(crate) fn edges(&self, graph: u64) -> R<Vec<(Edge, u64)>> {
        let mut all = Vec::new();
        for &to in &self.graph(graph)?.nodes {
            all.extend(self.node(to)?.edges.iter().map(|&e| (e, to)));
        }
        Ok(all)
    }

    /// Whether a graph or a child in it allocates or frees memory.
    pub(crate) fn has_memory_nodes(&self, graph: u64) -> bool {
        self.any_node(graph, &|n| matches!(n.task, Task::Alloc(_) | Task::Free(_)))
    }

    /// Whether `wanted` holds for a node of the graph or of a child in it.
    pub(crate) fn any_node(&self, graph: u64, wanted: &dyn Fn(&Node) -> bool) -> bool {
        let Some(graph) = self.graphs.known.get(&graph) else { return false };
        graph.nodes.iter().filter_map(|n| self.graphs.nodes.get(n)).any(|node| match node.task {
            Task::Child(child) => self.any_node(child, wanted),
            _ => wanted(node) || node.task.graphs().iter().any(|body| self.any_node(*body, wanted)),
        })
    }

    /// Copies a graph with its children; memory nodes and conditional nodes cannot be copied.
    pub(crate) fn clone_graph(&mut self, original: u64) -> R<u64> {
        self.graph(original)?;
        if self.has_memory_nodes(original) || self.any_node(original, &|n| matches!(n.task, Task::Conditional(_))) {
            return Err(INVALID_VALUE);
        }
        let clone = self.make_graph();
        let nodes = self.graph(original)?.nodes.clone();
        let objects = self.graph(original)?.objects.clone();
        for (&object, &count) in &objects {
            self.object_hold(object, count);
        }
        self.graph_mut(clone)?.objects = objects;
        let mut twins: Map<u64> = Map::default();
        for node in nodes {
            let source = self.node(node)?;
            let (mut task, work, ctx) = (source.task.clone(), source.work.clone(), source.ctx);
            let (edges, attributes) = (source.edges.clone(), source.attributes.clone());
            if let Task::Child(child) = task {
                task = Task::Child(self.clone_graph(child)?);
            }
            let twin = self.add_node(clone, Vec::new(), ctx, task, work)?;
            let copy = self.node_mut(twin)?;
            copy.origin = node;
            copy.attributes = attributes;
            copy.edges = edges;
            twins.insert(node, twin);
        }
        // Edges may lead backwards in the order of insertion: only now every twin is known.
        for &twin in twins.values() {
            for edge in &mut self.node_mut(twin)?.edges {
                edge.from = twins.get(&edge.from).copied().ok_or(INVALID_VALUE)?;
            }
        }
        Ok(clone)
    }

    /// The node of a clone that stands for a node of the original.
    pub(crate) fn find_in_clone(&self, original: u64, clone: u64) -> R<u64> {
        self.node(original)?;
        self.find_twin(original, clone).ok_or(INVALID_VALUE)
    }

    fn find_twin(&self, original: u64, clone: u64) -> Option<u64> {
        self.graphs.known.get(&clone)?.nodes.iter().find_map(|&handle| {
            let node = self.graphs.nodes.get(&handle)?;
            match node.task {
                _ if node.origin == original => Some(handle),
                Task::Child(child) => self.find_twin(original, child),
                _ => None,
            }
        })
    }

    /// Removes one node. A graph with memory nodes keeps them all, and so does one that is captured into.
    pub(crate) fn destroy_node(&mut self, node: u64) -> R {
        let graph = self.node(node)?.graph;
        if self.has_memory_nodes(graph) || self.graph(graph)?.captures > 0 {
            return Err(INVALID_VALUE);
        }
        let owner = self.graph_mut(graph)?;
        owner.nodes.retain(|&n| n != node);
        for other in owner.nodes.clone() {
            self.node_mut(other)?.edges.retain(|e| e.from != node);
        }
        self.drop_node(node);
        Ok(())
    }

    fn drop_node(&mut self, node: u64) {
        let Some(gone) = self.graphs.nodes.remove(&node) else { return };
        match gone.task {
            Task::Child(child) => self.drop_graph(child),
            Task::Conditional(condition) => condition.bodies.iter().for_each(|body| self.drop_graph(*body)),
            Task::Alloc(params) => self.graph_memory_let_go(params.addr),
            Task::Free(addr) => self.graph_memory_free_node_gone(addr, gone.graph),
            _ => {}
        }
    }

    /// `cuGraphDestroy`.
    pub(crate) fn destroy_graph(&mut self, graph: u64) -> R {
        let known = self.graph(graph)?;
        if known.parent.is_some() || known.captures > 0 {
            return Err(INVALID_VALUE);
        }
        self.drop_graph(graph);
        Ok(())
    }

    /// Removes a graph with its nodes and its references.
    pub(crate) fn drop_graph(&mut self, graph: u64) {
        let Some(gone) = self.graphs.known.remove(&graph) else { return };
        for node in gone.nodes {
            self.drop_node(node);
        }
        self.graphs.conditions.retain(|_, condition| condition.graph != graph);
        for (object, count) in gone.objects {
            self.object_let_go(object, count, None);
        }
        self.graph_memory_sweep();
    }
}

/// Edge data are zero, or a programmatic dependency on a kernel.
fn check_data(edge: &Edge, from: &Task) -> R {
    let [from_port, to_port, kind, reserved @ ..] = edge.data;
    if reserved != [0; 5] || to_port != 0 || kind > 1 || from_port > 2 {
        return Err(INVALID_VALUE);
    }
    if !edge.is_plain() && !matches!(from, Task::Kernel(_)) {
        return Err(INVALID_VALUE);
    }
    Ok(())
}
