//! Recurrent networks: their settings, and where each matrix and bias lies in the weights.
//!
//! Model for what no document gives: a pass works in a buffer of all gates of all steps in one layer, and
//! keeps all gates and both states of all steps in all layers for the backward pass.

use super::BAD_PARAM;
use super::tensor::{Tensor, element, write};
use crate::answers::put;
use core::ffi::{c_int, c_uint, c_void};

const LSTM: c_uint = 2;
const GRU: c_uint = 3;
const SKIP_INPUT: c_uint = 1;
const TRAINING: c_uint = 1;

/// A network's settings.
#[derive(Default, Clone, Copy)]
pub(crate) struct Network {
    pub(super) algorithm: c_uint,
    pub(super) cell: c_uint,
    bias: c_uint,
    pub(super) direction: c_uint,
    pub(super) input: c_uint,
    pub(super) kind: c_uint,
    pub(super) precision: c_uint,
    math: c_uint,
    input_size: c_int,
    pub(super) hidden: c_int,
    pub(super) projection: c_int,
    pub(super) layers: c_int,
    pub(super) dropout: usize,
    flags: c_uint,
}

/// The shape of a batch of sequences.
#[derive(Default, Clone)]
pub(crate) struct Sequences {
    kind: c_uint,
    layout: c_uint,
    longest: c_int,
    batch: c_int,
    vector: c_int,
    lengths: Vec<c_int>,
}

/// A matrix in the weights.
#[derive(Clone, Copy)]
pub(super) struct Part {
    offset: usize,
    rows: usize,
    columns: usize,
}

/// Where everything lies in the weights: by layer and number of the matrix.
pub(super) struct Weights {
    pub(super) matrices: Vec<Vec<Part>>,
    pub(super) biases: Vec<Vec<Option<Part>>>,
    pub(super) bytes: usize,
}

impl Network {
    fn gates(self) -> usize {
        match self.cell {
            LSTM => 4,
            GRU => 3,
            _ => 1,
        }
    }

    fn directions(self) -> usize {
        if self.direction == 1 { 2 } else { 1 }
    }

    fn hidden(self) -> usize {
        self.hidden.max(0) as usize
    }

    /// Length of what a layer gives to itself and to the next one.
    fn output(self) -> usize {
        if self.projected() { self.projection as usize } else { self.hidden() }
    }

    pub(super) fn projected(self) -> bool {
        self.cell == LSTM && self.projection > 0 && self.projection != self.hidden
    }

    /// Layers, with each direction a layer of its own.
    fn pseudo_layers(self) -> usize {
        self.layers.max(0) as usize * self.directions()
    }

    /// Matrices of a layer: one a gate for the input, one a gate for the state, and the projection.
    fn matrices(self, layer: usize) -> Vec<(usize, usize)> {
        let first = layer < self.directions();
        let input = match (first, self.input) {
            (true, SKIP_INPUT) => 0,
            (true, _) => self.input_size.max(0) as usize,
            (false, _) => self.output() * self.directions(),
        };
        let mut list = vec![(self.hidden(), input); self.gates()];
        list.extend(vec![(self.hidden(), self.output()); self.gates()]);
        if self.projected() {
            list.push((self.output(), self.hidden()));
        }
        list
    }

    /// Whether a matrix has a bias: 1 only those of the input, 2 all, 3 only those of the state.
    fn biased(self, matrix: usize) -> bool {
        match matrix / self.gates() {
            0 => matches!(self.bias, 1 | 2),
            1 => matches!(self.bias, 2 | 3),
            _ => false,
        }
    }

    /// Every matrix and bias, in the order in which they lie in the weights: first all matrices.
    pub(super) fn weights(self) -> Weights {
        let mut end = 0;
        let mut place = |rows: usize, columns: usize| {
            let part = Part { offset: end, rows, columns };
            end += rows * columns * element(self.kind);
            part
        };
        let layers = 0..self.pseudo_layers();
        let matrices: Vec<Vec<_>> = layers
            .clone()
            .map(|layer| self.matrices(layer).into_iter().map(|(rows, columns)| place(rows, columns)).collect())
            .collect();
        let biases = layers
            .map(|layer| {
                (0..self.matrices(layer).len()).map(|at| self.biased(at).then(|| place(self.hidden(), 1))).collect()
            })
            .collect();
        Weights { matrices, biases, bytes: end }
    }

    /// Bytes that a pass over so many vectors works in.
    pub(super) fn workspace(self, vectors: usize) -> usize {
        vectors * self.hidden() * element(self.kind) * self.gates() * self.directions()
    }

    /// Bytes that are kept of it for the backward pass.
    pub(super) fn reserve(self, vectors: usize) -> usize {
        vectors * self.hidden() * element(self.kind) * (self.gates() + 2) * self.pseudo_layers()
    }
}

library! {
    /// Makes a descriptor of a network.
    fn cudnnCreateRNNDescriptor(place: *mut *mut Network) { put(place, Box::into_raw(Box::default())); }
    /// Ends a descriptor of a network.
    fn cudnnDestroyRNNDescriptor(network: *mut Network) {
        if !network.is_null() {
            drop(Box::from_raw(network));
        }
    }
    /// Sets a network.
    fn cudnnSetRNNDescriptor_v8(
        network: *mut Network, algorithm: c_uint, cell: c_uint, bias: c_uint, direction: c_uint, input: c_uint,
        kind: c_uint, precision: c_uint, math: c_uint, input_size: c_int, hidden: c_int, projection: c_int,
        layers: c_int, dropout: usize, flags: c_uint,
    ) {
        *network = Network {
            algorithm, cell, bias, direction, input, kind, precision, math, input_size, hidden, projection, layers,
            dropout, flags,
        };
    }
    /// A network's settings.
    fn cudnnGetRNNDescriptor_v8(
        network: *const Network, algorithm: *mut c_uint, cell: *mut c_uint, bias: *mut c_uint, direction: *mut c_uint,
        input: *mut c_uint, kind: *mut c_uint, precision: *mut c_uint, math: *mut c_uint, input_size: *mut c_int,
        hidden: *mut c_int, projection: *mut c_int, layers: *mut c_int, dropout: *mut usize, flags: *mut c_uint,
    ) {
        let known = &*network;
        put(algorithm, known.algorithm);
        put(cell, known.cell);
        put(bias, known.bias);
        put(direction, known.direction);
        put(input, known.input);
        put(kind, known.kind);
        put(precision, known.precision);
        put(math, known.math);
        put(input_size, known.input_size);
        put(hidden, known.hidden);
        put(projection, known.projection);
        put(layers, known.layers);
        put(dropout, known.dropout);
        put(flags, known.flags);
    }
    /// Makes a descriptor of sequences.
    fn cudnnCreateRNNDataDescriptor(place: *mut *mut Sequences) { put(place, Box::into_raw(Box::default())); }
    /// Ends a descriptor of sequences.
    fn cudnnDestroyRNNDataDescriptor(sequences: *mut Sequences) {
        if !sequences.is_null() {
            drop(Box::from_raw(sequences));
        }
    }
    /// Sets sequences.
    fn cudnnSetRNNDataDescriptor(
        sequences: *mut Sequences, kind: c_uint, layout: c_uint, longest: c_int, batch: c_int, vector: c_int,
        lengths: *const c_int, _padding: *mut c_void,
    ) {
        if lengths.is_null() || batch < 0 {
            return Err(BAD_PARAM);
        }
        let lengths = std::slice::from_raw_parts(lengths, batch as usize).to_vec();
        *sequences = Sequences { kind, layout, longest, batch, vector, lengths };
    }
    /// The sequences that were set.
    fn cudnnGetRNNDataDescriptor(
        sequences: *const Sequences, kind: *mut c_uint, layout: *mut c_uint, longest: *mut c_int, batch: *mut c_int,
        vector: *mut c_int, wanted: c_int, lengths: *mut c_int, _padding: *mut c_void,
    ) {
        let known = &*sequences;
        put(kind, known.kind);
        put(layout, known.layout);
        put(longest, known.longest);
        put(batch, known.batch);
        put(vector, known.vector);
        write(lengths, &known.lengths, wanted);
    }
    /// Bytes of all weights.
    fn cudnnGetRNNWeightSpaceSize(_handle: *mut c_void, network: *const Network, size: *mut usize) {
        put(size, (*network).weights().bytes);
    }
    /// Where a matrix and its bias lie.
    fn cudnnGetRNNWeightParams(
        _handle: *mut c_void, network: *const Network, layer: c_int, _size: usize, weights: usize, matrix: c_int,
        matrix_layout: *mut Tensor, matrix_place: *mut usize, bias_layout: *mut Tensor, bias_place: *mut usize,
    ) {
        let Weights { matrices, biases, .. } = (*network).weights();
        let (layer, matrix) = (layer as usize, matrix as usize);
        let part = matrices.get(layer).and_then(|list| list.get(matrix)).copied();
        let bias = biases.get(layer).and_then(|list| list.get(matrix)).copied().flatten();
        describe((*network).kind, weights, part, matrix_layout, matrix_place);
        describe((*network).kind, weights, bias, bias_layout, bias_place);
    }
    /// The workspace, and what is kept for the backward pass.
    fn cudnnGetRNNTempSpaceSizes(
        _handle: *mut c_void, network: *const Network, mode: c_uint, sequences: *const Sequences,
        workspace: *mut usize, reserve: *mut usize,
    ) {
        let (network, sequences) = (*network, &*sequences);
        let steps = sequences.longest.max(1) as usize * sequences.batch.max(1) as usize;
        put(workspace, network.workspace(steps));
        put(reserve, if mode == TRAINING { network.reserve(steps) } else { 0 });
    }
}

/// Writes the shape and place of a part; without one, no dimensions and NULL.
///
/// # Safety
/// Both places are NULL or the caller's.
pub(super) unsafe fn describe(
    kind: c_uint,
    weights: usize,
    part: Option<Part>,
    layout: *mut Tensor,
    place: *mut usize,
) {
    let tensor =
        part.map_or_else(Tensor::default, |part| Tensor::packed(kind, &[1, part.rows as c_int, part.columns as c_int]));
    // SAFETY: as promised. The old layout is dropped.
    unsafe {
        if !layout.is_null() {
            *layout = tensor;
        }
        put(place, part.map_or(0, |part| weights + part.offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(cell: c_uint, direction: c_uint, layers: c_int) -> Network {
        Network { cell, direction, layers, bias: 2, input_size: 10, hidden: 7, projection: 7, ..Network::default() }
    }

    #[test]
    fn weights_are_the_sum_of_all_matrices_and_biases() {
        // One layer: four gates, each with a matrix for the input, one for the state, and two biases.
        assert_eq!(network(LSTM, 0, 1).weights().bytes, 4 * (7 * 10 + 7 * 7 + 2 * 7) * 4);
        // The second layer sees both directions of the first.
        let (first, second) = (3 * (7 * 10 + 7 * 7 + 2 * 7), 3 * (7 * 14 + 7 * 7 + 2 * 7));
        assert_eq!(network(GRU, 1, 2).weights().bytes, 2 * (first + second) * 4);
    }

    #[test]
    fn no_two_parts_overlap() {
        let Weights { matrices, biases, bytes: end } = network(LSTM, 1, 2).weights();
        let mut all: Vec<Part> = matrices.into_iter().flatten().collect();
        all.extend(biases.into_iter().flatten().flatten());
        all.sort_by_key(|part| part.offset);
        for pair in all.windows(2) {
            assert_eq!(pair[0].offset + pair[0].rows * pair[0].columns * 4, pair[1].offset);
        }
        assert_eq!(all.last().map(|p| p.offset + p.rows * p.columns * 4), Some(end));
    }
}
