//! Backend descriptors: a store of attributes that refer to each other, and a heuristic that finds one
//! engine for every operation graph.
//!
//! Model: an engine's workspace holds each filter of its convolutions once, in single precision. An engine
//! has no notes and no knobs.

use super::BAD_PARAM;
use crate::answers::put;
use core::ffi::{c_uint, c_void};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Types of attributes.
const INT64: c_uint = 3;
const DESCRIPTOR: c_uint = 15;

/// Names of attributes.
const HEURISTIC_MODE: c_uint = 200;
const HEURISTIC_GRAPH: c_uint = 201;
const HEURISTIC_RESULTS: c_uint = 202;
const CONFIG_ENGINE: c_uint = 300;
const PLAN_CONFIG: c_uint = 401;
const PLAN_WORKSPACE: c_uint = 402;
const FILTERS: [c_uint; 3] = [703, 709, 715];
const GRAPH_OPERATIONS: c_uint = 801;
const GRAPH_ENGINES: c_uint = 802;
const TENSOR_DIMENSIONS: c_uint = 902;
const ENGINE_GRAPH: c_uint = 1300;
const ENGINE_INDEX: c_uint = 1301;

/// What a descriptor holds. Others may refer to it; what it holds may still be set then.
#[derive(Default, Clone)]
struct Content {
    values: HashMap<c_uint, (Vec<u8>, usize)>,
    references: HashMap<c_uint, Vec<Shared>>,
}

type Shared = Arc<Mutex<Content>>;

/// What a caller's handle points to.
pub(crate) struct Descriptor(Shared);

fn content(shared: &Shared) -> Content {
    shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn bytes_of(kind: c_uint) -> usize {
    match kind {
        // Booleans and characters.
        2 | 24 => 1,
        // Handles, 64-bit numbers, doubles, pointers, descriptors.
        0 | 3 | 5 | 6 | DESCRIPTOR => 8,
        // Fractions.
        26 => 16,
        _ => 4,
    }
}

impl Content {
    fn referring(mut self, name: c_uint, to: Vec<Shared>) -> Self {
        self.references.insert(name, to);
        self
    }

    fn holding(mut self, name: c_uint, value: i64) -> Self {
        self.values.insert(name, (value.to_ne_bytes().to_vec(), 1));
        self
    }

    fn first(&self, name: c_uint) -> Option<Content> {
        self.references.get(&name).and_then(|list| list.first()).map(content)
    }

    fn number(&self, name: c_uint) -> i64 {
        let bytes = self.values.get(&name).and_then(|(bytes, _)| bytes.get(..4)).and_then(|b| b.try_into().ok());
        bytes.map_or(0, |bytes| i64::from(i32::from_ne_bytes(bytes)))
    }

    /// The engine that the heuristic finds: another one in each mode, so that a caller who queries in two
    /// modes tries two.
    fn found(&self) -> Content {
        let graph = self.references.get(&HEURISTIC_GRAPH).cloned().unwrap_or_default();
        let engine =
            Content::default().referring(ENGINE_GRAPH, graph).holding(ENGINE_INDEX, self.number(HEURISTIC_MODE));
        Content::default().referring(CONFIG_ENGINE, vec![Arc::new(Mutex::new(engine))])
    }

    /// Bytes that a plan works in.
    fn workspace(&self) -> i64 {
        let graph = self.first(PLAN_CONFIG).and_then(|c| c.first(CONFIG_ENGINE)).and_then(|e| e.first(ENGINE_GRAPH));
        let operations = graph.and_then(|g| g.references.get(&GRAPH_OPERATIONS).cloned()).unwrap_or_default();
        operations
            .iter()
            .map(content)
            .flat_map(|operation| FILTERS.iter().filter_map(|&name| operation.first(name)).collect::<Vec<_>>())
            .map(|filter| filter.elements() * 4)
            .sum()
    }

    /// Elements of a tensor.
    fn elements(&self) -> i64 {
        let (bytes, _) = self.values.get(&TENSOR_DIMENSIONS).cloned().unwrap_or_default();
        bytes.chunks_exact(8).filter_map(|b| b.try_into().ok().map(i64::from_ne_bytes)).product()
    }
}

library! {
    /// Makes a descriptor. What kind it is shows in its attributes.
    fn cudnnBackendCreateDescriptor(_kind: c_uint, place: *mut *mut Descriptor) {
        put(place, Box::into_raw(Box::new(Descriptor(Shared::default()))));
    }
    /// Ends a descriptor. What refers to it keeps what it held.
    fn cudnnBackendDestroyDescriptor(descriptor: *mut Descriptor) {
        if !descriptor.is_null() {
            drop(Box::from_raw(descriptor));
        }
    }
    /// Sets an attribute.
    fn cudnnBackendSetAttribute(
        descriptor: *mut Descriptor, name: c_uint, kind: c_uint, count: i64, elements: *const c_void,
    ) {
        if descriptor.is_null() || count < 0 || (elements.is_null() && count > 0) {
            return Err(BAD_PARAM);
        }
        let count = count as usize;
        if kind == DESCRIPTOR {
            let list = elements.cast::<*const Descriptor>();
            let others = (0..count).map(|at| *list.add(at)).filter(|d| !d.is_null()).map(|d| (*d).0.clone()).collect();
            (*descriptor).edit(|content| content.references.insert(name, others));
        } else {
            let bytes = (0..count * bytes_of(kind)).map(|at| *elements.cast::<u8>().add(at)).collect();
            (*descriptor).edit(|content| content.values.insert(name, (bytes, count)));
        }
    }
    /// Reads an attribute. Descriptors are copied into those that the caller made.
    fn cudnnBackendGetAttribute(
        descriptor: *const Descriptor, name: c_uint, kind: c_uint, room: i64, count: *mut i64, elements: *mut c_void,
    ) {
        if descriptor.is_null() {
            return Err(BAD_PARAM);
        }
        let known = content(&(*descriptor).0);
        let room = if elements.is_null() { 0 } else { room.max(0) as usize };
        if kind == DESCRIPTOR {
            let list = if name == HEURISTIC_RESULTS { vec![known.found()] } else {
                known.references.get(&name).map(|list| list.iter().map(content).collect()).unwrap_or_default()
            };
            put(count, list.len() as i64);
            for (at, value) in list.into_iter().take(room).enumerate() {
                let target = *elements.cast::<*mut Descriptor>().add(at);
                if target.is_null() {
                    return Err(BAD_PARAM);
                }
                (*target).edit(|content| *content = value);
            }
            return Ok(());
        }
        let (bytes, stored) = match name {
            PLAN_WORKSPACE if kind == INT64 => (known.workspace().to_ne_bytes().to_vec(), 1),
            GRAPH_ENGINES if kind == INT64 => (1i64.to_ne_bytes().to_vec(), 1),
            _ => known.values.get(&name).cloned().unwrap_or_default(),
        };
        put(count, stored as i64);
        let copied = (stored.min(room) * bytes_of(kind)).min(bytes.len());
        if copied > 0 {
            elements.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), copied);
        }
    }
    /// Checks a descriptor: every one is good.
    fn cudnnBackendFinalize(descriptor: *mut Descriptor) {
        if descriptor.is_null() {
            return Err(BAD_PARAM);
        }
    }
    /// Fills a descriptor in place.
    fn cudnnBackendInitialize(descriptor: *mut Descriptor) {
        if descriptor.is_null() {
            return Err(BAD_PARAM);
        }
    }
}

impl Descriptor {
    fn edit<T>(&self, change: impl FnOnce(&mut Content) -> T) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
