//! What the threads do: each role is one way of using memory, at random, until the time is over. A role keeps what it
//! allocates until it is refused, so that the cap is reached all the time.

use crate::driver::cu::*;
use crate::job::{Block, Context, Job, MIB, Verdict, fail};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use weir_cuda::*;

type Role = fn(&mut Job);

const ROLES: &[(&str, Role)] = &[
    ("plain", plain),
    ("ordered", ordered),
    ("passed", passed),
    ("captures", captures),
    ("contexts", contexts),
    ("streams", streams),
    ("mempools", mempools),
    ("peers", peers),
    ("collective", collective),
    ("host", host),
    ("copies", copies),
    ("queries", queries),
];

pub(crate) fn find(name: &str) -> Option<Role> {
    ROLES.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
}

pub(crate) fn names() -> String {
    ROLES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// A random one of a list, taken out.
fn pick<T>(job: &mut Job, list: &mut Vec<T>) -> Option<T> {
    let at = job.rng.below(list.len() as u64) as usize;
    (!list.is_empty()).then(|| list.swap_remove(at))
}

/// How many go when nothing more is to be had.
fn some_of(job: &mut Job, count: usize) -> usize {
    count.min(1 + job.rng.below(count as u64 / 2 + 1) as usize)
}

/// `cuMemAlloc`, `cuMemAllocPitch`, `cuMemFree`, and frees of such memory in stream order.
fn plain(job: &mut Job) {
    let mut held: Vec<Block> = Vec::new();
    while !job.over() {
        match job.rng.below(20) {
            0..11 => {
                let bytes = job.size();
                let got = if job.rng.one_in(6) { pitched(job, bytes) } else { job.alloc(bytes) };
                if let Some(mut block) = got {
                    job.fill(&mut block, job.stream);
                    held.push(block);
                } else {
                    for _ in 0..some_of(job, held.len()) {
                        give(job, &mut held);
                    }
                }
            }
            11..15 => give(job, &mut held),
            15..17 => {
                for block in &held {
                    job.check(block, job.stream);
                }
            }
            17 => job.exchange_mode(),
            _ => {
                job.call("cuStreamSynchronize", || cuStreamSynchronize(job.stream));
            }
        }
    }
    while !held.is_empty() {
        give(job, &mut held);
    }
}

fn give(job: &mut Job, held: &mut Vec<Block>) {
    let Some(block) = pick(job, held) else { return };
    job.check(&block, job.stream);
    if job.rng.one_in(3) {
        job.free_async(&block, job.stream);
    } else {
        job.free(&block);
    }
}

fn pitched(job: &mut Job, bytes: u64) -> Option<Block> {
    let (mut ptr, mut pitch) = (0, 0);
    let (width, rows) = (1000, (bytes as usize).div_ceil(1024));
    let (at, apart) = (&raw mut ptr, &raw mut pitch);
    let verdict = job.call("cuMemAllocPitch", || cuMemAllocPitch_v2(at, apart, width, rows, 4));
    (verdict == Verdict::Done).then(|| Block { ptr, bytes: (pitch * rows) as u64, pattern: 0 })
}

/// Requests and frees in stream order, in three streams that wait for each other.
fn ordered(job: &mut Job) {
    let streams = [job.stream, job.new_stream(), job.new_stream()];
    let mut held: Vec<(Block, usize)> = Vec::new();
    let free = |job: &mut Job, held: &mut Vec<(Block, usize)>| {
        if let Some((block, home)) = pick(job, held) {
            job.check(&block, streams[home]);
            job.free_async(&block, streams[home]);
        }
    };
    while !job.over() {
        match job.rng.below(20) {
            0..11 => {
                let (bytes, home) = (job.size(), job.rng.below(3) as usize);
                if let Some(mut block) = job.alloc_async(bytes, streams[home]) {
                    job.fill(&mut block, streams[home]);
                    held.push((block, home));
                } else {
                    for _ in 0..some_of(job, held.len()) {
                        free(job, &mut held);
                    }
                }
            }
            11..15 => free(job, &mut held),
            15..18 => {
                if let Some((block, home)) = pick(job, &mut held) {
                    let next = (home + 1) % 3;
                    job.follow(streams[next], streams[home]);
                    held.push((block, next));
                }
            }
            18 => job.exchange_mode(),
            _ => {
                let stream = streams[job.rng.below(3) as usize];
                job.call("cuStreamSynchronize", || cuStreamSynchronize(stream));
            }
        }
    }
    while !held.is_empty() {
        free(job, &mut held);
    }
    for stream in streams {
        job.synchronise(stream);
    }
}

/// What the driver serves itself.
enum Passed {
    Managed(Block),
    Mapped(Block, u64),
    Array(CUarray),
}

fn passed(job: &mut Job) {
    let mut held: Vec<Passed> = Vec::new();
    while !job.over() {
        match job.rng.below(10) {
            0..6 => {
                let bytes = job.size();
                let got = match job.rng.below(3) {
                    0 => managed(job, bytes),
                    1 => mapped(job, bytes),
                    _ => array(job, bytes),
                };
                if let Some(got) = got {
                    held.push(got);
                } else {
                    for _ in 0..some_of(job, held.len()) {
                        give_passed(job, &mut held);
                    }
                }
            }
            6..8 => give_passed(job, &mut held),
            8 => job.exchange_mode(),
            _ => {
                for one in &held {
                    if let Passed::Managed(block) | Passed::Mapped(block, _) = one {
                        job.check(block, job.stream);
                    }
                }
            }
        }
    }
    while !held.is_empty() {
        give_passed(job, &mut held);
    }
}

fn managed(job: &mut Job, bytes: u64) -> Option<Passed> {
    let mut ptr = 0;
    let place = &raw mut ptr;
    if job.call("cuMemAllocManaged", || cuMemAllocManaged(place, bytes as usize, 1)) != Verdict::Done {
        return None;
    }
    let mut block = Block { ptr, bytes, pattern: 0 };
    job.fill(&mut block, job.stream);
    Some(Passed::Managed(block))
}

fn location(device: i32) -> CUmemLocation {
    let mut location =
        CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, ..CUmemLocation::default() };
    location.__bindgen_anon_1.id = device;
    location
}

fn mapped(job: &mut Job, bytes: u64) -> Option<Passed> {
    let (bytes, device) = (bytes.next_multiple_of(2 * MIB), job.context.device);
    let properties = CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: location(device),
        ..CUmemAllocationProp::default()
    };
    let (mut handle, mut ptr) = (0, 0);
    let (at, place) = (&raw mut handle, &raw mut ptr);
    if job.call("cuMemCreate", || cuMemCreate(at, bytes as usize, &raw const properties, 0)) != Verdict::Done {
        return None;
    }
    let access =
        CUmemAccessDesc { location: location(device), flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    job.must("cuMemAddressReserve", || cuMemAddressReserve(place, bytes as usize, 0, 0, 0));
    job.must("cuMemMap", || cuMemMap(ptr, bytes as usize, 0, handle, 0));
    job.must("cuMemSetAccess", || cuMemSetAccess(ptr, bytes as usize, &raw const access, 1));
    let mut block = Block { ptr, bytes, pattern: 0 };
    job.fill(&mut block, job.stream);
    Some(Passed::Mapped(block, handle))
}

fn array(job: &mut Job, bytes: u64) -> Option<Passed> {
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        Width: 1024,
        Height: (bytes / 4096 + 1) as usize,
        Format: CUarray_format::CU_AD_FORMAT_FLOAT,
        NumChannels: 1,
    };
    let mut array = null_mut();
    let place = &raw mut array;
    let verdict = job.call("cuArrayCreate", || cuArrayCreate_v2(place, &raw const descriptor));
    (verdict == Verdict::Done).then_some(Passed::Array(array))
}

fn give_passed(job: &mut Job, held: &mut Vec<Passed>) {
    match pick(job, held) {
        None => {}
        Some(Passed::Managed(block)) => {
            job.check(&block, job.stream);
            job.free(&block);
        }
        Some(Passed::Mapped(block, handle)) => {
            job.check(&block, job.stream);
            // Unmapping is no fence.
            job.synchronise(job.stream);
            job.must("cuMemUnmap", || cuMemUnmap(block.ptr, block.bytes as usize));
            job.must("cuMemRelease", || cuMemRelease(handle));
            job.must("cuMemAddressFree", || cuMemAddressFree(block.ptr, block.bytes as usize));
        }
        Some(Passed::Array(array)) => job.must("cuArrayDestroy", || cuArrayDestroy(array)),
    }
}

/// Captures of every mode, with memory nodes, ended, lost by other threads or on purpose; their graphs are launched.
fn captures(job: &mut Job) {
    let (beside, joined) = (job.new_stream(), job.new_stream());
    while !job.over() {
        let stream = job.new_stream();
        let mode = CUstreamCaptureMode(job.rng.below(3) as u32);
        if job.rng.one_in(4) {
            job.exchange_mode();
        }
        if job.call("cuStreamBeginCapture", || cuStreamBeginCapture_v2(stream, mode)) == Verdict::Done {
            let inside = captured(job, stream, beside, joined);
            let mut graph = null_mut();
            let place = &raw mut graph;
            let ended = job.call("cuStreamEndCapture", || cuStreamEndCapture(stream, place));
            if ended == Verdict::Done && !graph.is_null() {
                launched(job, graph, stream, inside);
            }
        }
        job.must("cuStreamDestroy", || cuStreamDestroy_v2(stream));
    }
    job.synchronise(beside);
    job.synchronise(joined);
}

/// What is done while a stream captures; memory that its graph allocates and does not free.
fn captured(job: &mut Job, stream: CUstream, beside: CUstream, joined: CUstream) -> Option<Block> {
    let mut kept = None;
    for _ in 0..job.rng.below(4) {
        match job.rng.below(8) {
            0..4 => {
                let bytes = 4096 + job.rng.below(MIB);
                let Some(mut block) = job.alloc_async(bytes, stream) else { return kept };
                let filled = job.fill_in(&mut block, stream);
                if filled != Verdict::Done || job.check_in(&block, stream) != Verdict::Done {
                    return kept;
                }
                if kept.is_none() && job.rng.one_in(4) {
                    kept = Some(block);
                } else if job.call("cuMemFreeAsync", || cuMemFreeAsync(block.ptr, stream)) != Verdict::Done {
                    return kept;
                }
            }
            4 | 5 => {
                // Beside a capture, others go on.
                let bytes = job.size();
                if let Some(mut block) = job.alloc_async(bytes, beside) {
                    job.fill(&mut block, beside);
                    job.check(&block, beside);
                    job.free_async(&block, beside);
                }
            }
            6 => {
                let event = job.new_event();
                let fork = job.call("cuEventRecord", || cuEventRecord(event, stream)) == Verdict::Done
                    && job.call("cuStreamWaitEvent", || cuStreamWaitEvent(joined, event, 0)) == Verdict::Done;
                if fork {
                    let back = job.new_event();
                    let _ = job.call("cuEventRecord", || cuEventRecord(back, joined)) == Verdict::Done
                        && job.call("cuStreamWaitEvent", || cuStreamWaitEvent(stream, back, 0)) == Verdict::Done;
                    job.must("cuEventDestroy", || cuEventDestroy_v2(back));
                }
                job.must("cuEventDestroy", || cuEventDestroy_v2(event));
            }
            _ => {
                // Lost on purpose: a stream that captures cannot be waited for.
                if job.call("cuStreamSynchronize", || cuStreamSynchronize(stream)) == Verdict::Done {
                    fail(&job.watched.name, "cuStreamSynchronize", "of a capturing stream succeeded");
                }
                return kept;
            }
        }
    }
    kept
}

fn launched(job: &mut Job, graph: CUgraph, stream: CUstream, inside: Option<Block>) {
    let mut exec = null_mut();
    let place = &raw mut exec;
    let made = job.call("cuGraphInstantiate", || cuGraphInstantiateWithFlags(place, graph, 0));
    if made == Verdict::Done {
        for _ in 0..=job.rng.below(2) {
            let ran = job.call("cuGraphLaunch", || cuGraphLaunch(exec, stream)) == Verdict::Done;
            if let (true, Some(block)) = (ran, &inside) {
                job.check(block, stream);
                job.free_async(block, stream);
            }
        }
        job.synchronise(stream);
        job.must("cuGraphExecDestroy", || cuGraphExecDestroy(exec));
    }
    job.must("cuGraphDestroy", || cuGraphDestroy(graph));
    if job.rng.one_in(3) {
        let device = job.context.device;
        job.call("cuDeviceGraphMemTrim", || cuDeviceGraphMemTrim(device));
    }
}

/// Contexts that come and go with their memory, some of it in use.
fn contexts(job: &mut Job) {
    let home = job.context;
    while !job.over() {
        let mut handle = null_mut();
        let (place, device) = (&raw mut handle, home.device);
        if job.call("cuCtxCreate", || cuCtxCreate_v2(place, 0, device)) != Verdict::Done {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        job.context = Context::load(handle, device, |module, text| {
            job.must("cuModuleLoadData", || cuModuleLoadData(module, text));
        });
        let stream = job.new_stream();
        for _ in 0..job.rng.below(6) {
            let bytes = job.size();
            let plain = job.rng.one_in(2);
            let got = if plain { job.alloc(bytes) } else { job.alloc_async(bytes, stream) };
            if let Some(mut block) = got {
                job.fill(&mut block, stream);
                job.check(&block, stream);
                if job.rng.one_in(2) {
                    job.synchronise(stream);
                    job.free(&block);
                } else if !plain || job.rng.one_in(2) {
                    // Memory of mempools would outlive the context.
                    job.free_async(&block, stream);
                }
            }
        }
        job.must("cuCtxDestroy", || cuCtxDestroy_v2(handle));
        job.use_context(home);
        if job.rng.one_in(4) {
            job.exchange_mode();
        }
    }
}

/// Streams that come and go with work in them.
fn streams(job: &mut Job) {
    while !job.over() {
        let stream = job.new_stream();
        let bytes = job.size();
        if let Some(mut block) = job.alloc_async(bytes, stream) {
            job.fill(&mut block, stream);
            job.check(&block, stream);
            if job.rng.one_in(2) {
                job.free_async(&block, stream);
                job.must("cuStreamDestroy", || cuStreamDestroy_v2(stream));
            } else {
                job.follow(job.stream, stream);
                job.must("cuStreamDestroy", || cuStreamDestroy_v2(stream));
                job.check(&block, job.stream);
                job.free_async(&block, job.stream);
            }
        } else {
            job.must("cuStreamDestroy", || cuStreamDestroy_v2(stream));
        }
        if job.rng.one_in(8) {
            job.call("cuStreamSynchronize", || cuStreamSynchronize(job.stream));
        }
    }
}

/// Mempools that come and go with memory in them.
fn mempools(job: &mut Job) {
    let properties = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: location(job.context.device),
        ..CUmemPoolProps::default()
    };
    while !job.over() {
        let mut pool = null_mut();
        let place = &raw mut pool;
        job.must("cuMemPoolCreate", || cuMemPoolCreate(place, &raw const properties));
        if job.rng.one_in(2) {
            let (mut keep, attribute) = (u64::MAX, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
            let value = (&raw mut keep).cast();
            job.must("cuMemPoolSetAttribute", || cuMemPoolSetAttribute(pool, attribute, value));
        }
        let mut held = Vec::new();
        for _ in 0..job.rng.below(8) {
            let (mut ptr, bytes) = (0, job.size());
            let (place, stream) = (&raw mut ptr, job.stream);
            let request = || cuMemAllocFromPoolAsync(place, bytes as usize, pool, stream);
            if job.call("cuMemAllocFromPoolAsync", request) == Verdict::Done {
                let mut block = Block { ptr, bytes, pattern: 0 };
                job.fill(&mut block, stream);
                held.push(block);
            }
            if job.rng.one_in(2)
                && let Some(block) = pick(job, &mut held)
            {
                job.check(&block, stream);
                job.free_async(&block, stream);
            }
            if job.rng.one_in(6) {
                job.call("cuMemPoolTrimTo", || cuMemPoolTrimTo(pool, 0));
            }
        }
        // A mempool that is destroyed lives on until its memory is freed.
        job.must("cuMemPoolDestroy", || cuMemPoolDestroy(pool));
        for block in held {
            job.check(&block, job.stream);
            job.free_async(&block, job.stream);
        }
        if job.rng.one_in(4) {
            job.synchronise(job.stream);
        }
    }
}

/// Access of device 0 to memory of device 1, switched on and off.
fn peers(job: &mut Job) {
    let [near, far] = [job.shared.contexts[0], job.shared.contexts[1]];
    job.use_context(far);
    let far_stream = job.new_stream();
    while !job.over() {
        job.use_context(far);
        let bytes = job.size();
        let mut block = job.alloc(bytes);
        if let Some(block) = &mut block {
            job.fill(block, far_stream);
            job.synchronise(far_stream);
        }
        job.use_context(near);
        job.must("cuCtxEnablePeerAccess", || cuCtxEnablePeerAccess(far.handle, 0));
        if let Some(block) = &block {
            let stream = job.new_stream();
            job.check(block, stream);
            job.synchronise(stream);
            job.must("cuStreamDestroy", || cuStreamDestroy_v2(stream));
        }
        job.must("cuCtxDisablePeerAccess", || cuCtxDisablePeerAccess(far.handle));
        if let Some(block) = &block {
            job.use_context(far);
            job.free(block);
        }
    }
    job.use_context(near);
}

/// Two devices whose kernels need each other: one device already waits when the memory for the other's part is requested.
fn collective(job: &mut Job) {
    let (home, contexts) = (job.context, [job.shared.contexts[0], job.shared.contexts[1]]);
    let ends = contexts.map(|context| {
        job.use_context(context);
        // What the legacy streams of both devices wait for must not depend on each other.
        [job.new_stream_with(1), job.new_stream_with(1)]
    });
    let flag = job.pinned();
    let mut held: Vec<(Block, usize)> = Vec::new();
    while !job.over() {
        let late = job.rng.below(2) as usize;
        let early = 1 - late;
        // SAFETY: a pinned word of our own, which no work touches now.
        unsafe { flag.write_volatile(0) };
        job.use_context(contexts[early]);
        job.wait(ends[early][0], flag);
        // From here to the start nothing that may wait for that device: no free, no synchronisation.
        for _ in 0..=job.rng.below(3) {
            let device = if job.rng.one_in(3) { early } else { late };
            job.use_context(contexts[device]);
            let (bytes, stream) = (job.size(), ends[device][1]);
            let got = if job.rng.one_in(2) { job.alloc(bytes) } else { job.alloc_async(bytes, stream) };
            if let Some(mut block) = got {
                job.fill(&mut block, stream);
                held.push((block, device));
            }
        }
        job.use_context(contexts[late]);
        job.start(ends[late][0], flag);
        while held.len() > 6 {
            give_collective(job, &mut held, &contexts, &ends);
        }
        for (end, context) in ends.iter().zip(contexts) {
            job.use_context(context);
            job.synchronise(end[0]);
        }
        if job.rng.one_in(4) {
            give_collective(job, &mut held, &contexts, &ends);
        }
    }
    while !held.is_empty() {
        give_collective(job, &mut held, &contexts, &ends);
    }
    for stream in ends.into_iter().flatten() {
        job.synchronise(stream);
    }
    job.use_context(home);
}

fn give_collective(job: &mut Job, held: &mut Vec<(Block, usize)>, contexts: &[Context; 2], ends: &[[CUstream; 2]; 2]) {
    let Some((block, device)) = pick(job, held) else { return };
    job.use_context(contexts[device]);
    job.check(&block, ends[device][1]);
    job.free_async(&block, ends[device][1]);
}

/// A host function that ends only when this thread has got its memory, or was refused it.
fn host(job: &mut Job) {
    unsafe extern "C" fn wait(gate: *mut c_void) {
        // SAFETY: the gate below, which lives until the stream was waited for.
        let gate = unsafe { &*gate.cast::<AtomicBool>() };
        while !gate.load(SeqCst) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    let blocked = job.new_stream();
    let gate: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let mut held: Vec<Block> = Vec::new();
    while !job.over() {
        gate.store(false, SeqCst);
        let data = std::ptr::from_ref(gate).cast_mut().cast();
        job.must("cuLaunchHostFunc", || cuLaunchHostFunc(blocked, Some(wait), data));
        // No free and no synchronisation before the gate is open: they may wait for it.
        for _ in 0..=job.rng.below(4) {
            let bytes = job.size();
            let got = if job.rng.one_in(2) { job.alloc(bytes) } else { job.alloc_async(bytes, job.stream) };
            if let Some(mut block) = got {
                job.fill(&mut block, job.stream);
                held.push(block);
            }
        }
        gate.store(true, SeqCst);
        job.synchronise(blocked);
        while held.len() > 8 || (job.rng.one_in(3) && !held.is_empty()) {
            if let Some(block) = pick(job, &mut held) {
                job.check(&block, job.stream);
                job.free_async(&block, job.stream);
            }
        }
    }
    for block in held {
        job.check(&block, job.stream);
        job.free_async(&block, job.stream);
    }
}

/// Copies and sets in the legacy stream, and requests in the default stream of the thread.
fn copies(job: &mut Job) {
    const PER_THREAD: CUstream = 2 as CUstream;
    while !job.over() {
        let bytes = job.size() / 4 * 4;
        if let Some(mut block) = job.alloc(bytes) {
            job.fill(&mut block, job.stream);
            if job.rng.one_in(2) {
                let (value, words) = (block.pattern ^ 0x5555_5555, (bytes / 4) as usize);
                // The legacy stream does not wait for streams that are none of its own.
                job.synchronise(job.stream);
                if job.call("cuMemsetD32", || cuMemsetD32_v2(block.ptr, value, words)) == Verdict::Done {
                    block.pattern = value;
                    // Returns before it is done.
                    job.must("cuCtxSynchronize", cuCtxSynchronize);
                }
            }
            job.synchronise(job.stream);
            let mut words = [0u32; 256];
            let copied = words.as_mut_ptr().cast();
            let copy = || cuMemcpyDtoH_v2(copied, block.ptr, 1024);
            if job.call("cuMemcpyDtoH", copy) == Verdict::Done && words.iter().any(|word| *word != block.pattern) {
                fail(&job.watched.name, "content", "a copy to the host is not what was written");
            }
            job.free(&block);
        }
        let mut ptr = 0;
        let place = &raw mut ptr;
        let request = || cuMemAllocAsync_ptsz(place, bytes as usize, null_mut());
        if job.call("cuMemAllocAsync_ptsz", request) == Verdict::Done {
            let mut block = Block { ptr, bytes, pattern: 0 };
            job.fill(&mut block, PER_THREAD);
            job.check(&block, PER_THREAD);
            job.must("cuMemFreeAsync_ptsz", || cuMemFreeAsync_ptsz(ptr, null_mut()));
        }
        if job.rng.one_in(4) {
            job.exchange_mode();
        }
    }
    job.synchronise(PER_THREAD);
}

/// Questions, and waits for whole contexts.
fn queries(job: &mut Job) {
    let event = job.new_event();
    let handle = job.context.handle;
    while !job.over() {
        let (mut free, mut total) = (0, 0);
        let (at, of) = (&raw mut free, &raw mut total);
        match job.rng.below(12) {
            0..6 => job.must("cuMemGetInfo", || cuMemGetInfo_v2(at, of)),
            6 => {
                job.call("cuCtxSynchronize", cuCtxSynchronize);
            }
            7 => {
                if job.call("cuCtxRecordEvent", || cuCtxRecordEvent(handle, event)) == Verdict::Done {
                    job.call("cuEventSynchronize", || cuEventSynchronize(event));
                }
            }
            8 => {
                job.must("cuEventRecord", || cuEventRecord(event, job.stream));
                job.call("cuEventSynchronize", || cuEventSynchronize(event));
            }
            9 => job.exchange_mode(),
            _ => std::thread::sleep(Duration::from_micros(300)),
        }
    }
}
