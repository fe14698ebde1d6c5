//! Which node of a graph an operation came from, by its name. TensorFlow, its graph optimizers and XLA rename and split
//! nodes; what they keep of a name is known here. Pure: the shim looks up lines with it while the job runs, the report
//! afterwards.

const GRADIENT: &[u8] = b"gradient_tape/";

/// What `exact` knows of the node that an operation of this name came from; 0 is nothing.
#[cold]
pub fn node_of(name: &[u8], exact: impl Fn(&[u8]) -> u32) -> u32 {
    let name = consumer(name).unwrap_or(name);
    // Optimisers of graphs append what they did: `conv/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer`.
    let name = name.split(|byte| *byte == b'-').next().unwrap_or(name);
    // A function's body that was put in place of its call carries the call's name in front, one for each level;
    // `StatefulPartitionedCall/` is the usual one. A rewritten node carries its optimiser's.
    let mut rest = name;
    loop {
        // `gradient_tape/X/Y` is the gradient of X: the line that made X says more than the one that requested gradients.
        let gradient = rest.strip_prefix(GRADIENT);
        let forward = gradient.and_then(parent).map_or(0, &exact);
        let forward = if forward == 0 { gradient.map_or(0, |name| forward_kernel(name, &exact)) } else { forward };
        let found = if forward == 0 { exact(rest) } else { forward };
        if found != 0 {
            return found;
        }
        match rest.iter().position(|byte| *byte == b'/').and_then(|at| rest.get(at + 1..)) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    // A node that was split or fused keeps the name of what it was made from as a folder.
    let mut rest = name;
    while let Some(shorter) = parent(rest) {
        rest = shorter;
        let mut inner = rest;
        loop {
            let inner_name = inner.strip_prefix(GRADIENT).unwrap_or(inner);
            let found = exact(inner_name);
            if found != 0 {
                return found;
            }
            match inner.iter().position(|byte| *byte == b'/').and_then(|at| inner.get(at + 1..)) {
                Some(shorter) if shorter.contains(&b'/') => inner = shorter,
                _ => break,
            }
        }
    }
    0
}

/// What is known of the kernel whose gradient has this name: `lstm/CudnnRNNV3` for `lstm/CudnnRNNBackpropV3`.
fn forward_kernel(name: &[u8], exact: impl Fn(&[u8]) -> u32) -> u32 {
    const WORD: &[u8] = b"Backprop";
    let mut forward = [0; 512];
    let at = name.windows(WORD.len()).rposition(|part| part == WORD);
    let parts = at.and_then(|at| name.get(..at).zip(name.get(at + WORD.len()..)));
    parts.map_or(0, |(before, after)| {
        let length = before.len() + after.len();
        for (place, byte) in forward.iter_mut().zip(before.iter().chain(after)) {
            *place = *byte;
        }
        forward.get(..length).map_or(0, &exact)
    })
}

/// Where TensorFlow moves a tensor to the host and back to save memory: the operation that the tensor is for. Its name is
/// in between `swap_in_` and the number of the input.
fn consumer(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(b"swap_in_").or_else(|| name.strip_prefix(b"swap_out_"))?;
    let end = rest.iter().rposition(|byte| *byte == b'_')?;
    rest.get(..end)
}

/// A name without its last part.
fn parent(name: &[u8]) -> Option<&[u8]> {
    let end = name.iter().rposition(|byte| *byte == b'/')?;
    name.get(..end)
}
