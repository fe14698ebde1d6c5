//! Modules made here field by field, and modules that are damaged in every way that a byte can be.

use std::path::PathBuf;

use super::*;
use crate::export::{self, proto::Message};
use crate::synthetic::{End, Job};

const CONV: i64 = 11;
const FUSION: i64 = 12;
const COPY: i64 = 13;
const ARGUMENT: i64 = 10;

fn instruction(id: i64, opcode: &str, op: &str, operands: &[i64], sides: &[u64]) -> Message {
    let (mut meta, mut shape, mut made) = (Message::new(), Message::new(), Message::new());
    meta.text(2, op);
    shape.number(2, 11).numbers(3, sides.iter().copied());
    made.text(1, "name").text(2, opcode).message(3, &shape).message(7, &meta).number(35, id as u64);
    made.numbers(36, operands.iter().map(|id| *id as u64));
    made
}

fn buffer(id: u64, bytes: u64, instruction: i64, index: &[u64]) -> Message {
    let (mut place, mut made) = (Message::new(), Message::new());
    place.numbers(3, index.iter().copied()).number(4, instruction as u64);
    made.number(1, id).number(2, bytes).message(3, &place);
    made
}

fn event(kind: u64, buffer: u64, shares: u64) -> Message {
    let mut made = Message::new();
    made.number(1, kind).number(2, buffer).number(5, shares);
    made
}

/// A step: a variable is copied, a convolution has a result and scratch memory, a fusion takes the place of the copy.
fn step(traced: bool) -> Vec<u8> {
    let mut entry = Message::new();
    let mut conv = instruction(CONV, "custom-call", "model/conv/Conv2D", &[7], &[]);
    let (mut result, mut scratch, mut tuple) = (Message::new(), Message::new(), Message::new());
    result.number(2, 11).numbers(3, [8, 64]);
    scratch.number(2, 6).numbers(3, [4096]);
    tuple.number(2, 13).message(4, &result).message(4, &scratch);
    conv.message(3, &tuple);
    entry.message(2, &instruction(ARGUMENT, "parameter", "XLA_Args", &[], &[8, 64]));
    // The copy is made in a computation of its own, as XLA makes it for command buffers.
    let mut copies = Message::new();
    copies.message(2, &instruction(30, "parameter", "XLA_Args", &[], &[8, 64]));
    copies.message(2, &instruction(COPY, "copy", "", &[30], &[64, 8])).number(5, 3).number(6, 32);
    copies.message(2, &instruction(33, "constant", "", &[], &[1]));
    copies.message(2, &instruction(32, "tuple", "", &[33, COPY], &[]));
    entry.message(2, &instruction(31, "call", "", &[ARGUMENT], &[64, 8]).number(38, 3).clone()).message(2, &conv);
    entry.message(2, &instruction(5, "get-tuple-element", "", &[31], &[1]).number(13, 0).clone());
    entry.message(2, &instruction(6, "negate", "another/Neg", &[5], &[1]));
    entry.message(2, &instruction(7, "get-tuple-element", "", &[31], &[64, 8]).number(13, 1).clone());
    entry.message(2, &instruction(FUSION, "fusion", "", &[CONV], &[8, 64]).number(38, 2).clone());
    entry.number(5, 1).number(6, FUSION as u64);
    let mut fused = Message::new();
    fused.message(2, &instruction(20, "parameter", "", &[], &[8, 64]));
    fused.message(2, &instruction(21, "multiply", "gradient_tape/model/conv/Mul", &[20], &[8, 64]));
    fused.number(5, 2).number(6, 21);
    let mut module = Message::new();
    module.text(1, "a_inference_one_step_on_data_77__.13").message(3, &fused).message(3, &copies).message(3, &entry);
    let mut assignment = Message::new();
    assignment.message(1, &buffer(1, 2048, COPY, &[])).message(1, &buffer(2, 4000, CONV, &[0]));
    assignment.message(1, &buffer(3, 4096, CONV, &[1])).message(1, &buffer(4, 2048, FUSION, &[]));
    assignment.message(1, &buffer(5, 2048, ARGUMENT, &[]));
    let (mut arena, mut given) = (Message::new(), Message::new());
    arena.number(1, 1).number(2, 10_240).number(11, 1);
    for (id, offset) in [(1, 0), (2, 2048), (3, 6144), (4, 0)] {
        let mut assigned = Message::new();
        assigned.number(1, id).number(2, offset);
        arena.message(9, &assigned);
    }
    given.number(2, 2048).number(5, 1).number(6, 0).number(7, 1);
    assignment.message(3, &given).message(3, &arena);
    let mut trace = Message::new();
    for (kind, id, shares) in [(0, 1, 0), (0, 2, 0), (0, 3, 0), (1, 3, 0), (2, 4, 1), (1, 1, 0), (1, 2, 0), (1, 4, 0)] {
        trace.message(1, &event(kind, id, shares));
    }
    // XLA renumbers its allocations afterwards: the number in the trace is none to go by.
    trace.number(2, 1).number(3, 99);
    if traced {
        assignment.message(4, &trace);
    }
    let mut file = Message::new();
    file.message(1, &module).message(3, &assignment);
    file.bytes().to_vec()
}

#[test]
fn an_arena_at_its_peak_is_named_by_operation_role_and_shape() {
    let arena = arena_of(&step(true)).expect("a module");
    assert_eq!((arena.bytes, arena.total, arena.exact), (10_240, 12_288, true));
    assert_eq!(arena.function(), "one_step_on_data");
    let parts: Vec<_> =
        arena.parts.iter().map(|part| (part.op.as_str(), part.role, part.shape.as_str(), part.bytes)).collect();
    let conv = "model/conv/Conv2D";
    assert_eq!(
        parts,
        [
            (conv, Role::Workspaces, "u8[4096]", 4096),
            (conv, Role::Activations, "f32[8,64]", 4000),
            // Named after what uses it: it is given, and given back changed.
            (conv, Role::Parameters, "f32[64,8]", 2048),
        ]
    );
    assert_eq!((arena.peak, arena.named), (10_144, 10_144));
}

#[test]
fn without_an_order_of_events_what_does_not_overlap_is_a_lower_bound() {
    let arena = arena_of(&step(false)).expect("a module");
    assert!(!arena.exact);
    // Of the copy and the fusion that takes its place, one.
    assert_eq!((arena.peak, arena.parts.len()), (10_144, 3));
    assert!(arena.peak <= arena.bytes);
}

#[test]
fn a_fusion_is_named_by_what_is_fused() {
    let file = step(false);
    let mut module = Module::of(&file).expect("a module");
    module.allocations.retain(super::module::Allocation::is_arena);
    let mut arena = module.allocations.pop().expect("an arena");
    arena.assigned = vec![(4, 0)];
    let (pieces, _) = inside::at_peak(&module, &arena, &Patience::new());
    assert_eq!(pieces.first().map(|piece| piece.op), Some("gradient_tape/model/conv/Mul"));
}

#[test]
fn damaged_files_are_read_as_far_as_they_make_sense() {
    let whole = step(true);
    for end in 0..whole.len() {
        if let Some(arena) = arena_of(&whole[..end]) {
            assert!(end > 0 && arena.bytes > 0);
        }
    }
    let mut read = 0;
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << bit;
            read += usize::from(arena_of(&damaged).is_some());
        }
    }
    assert!(read > whole.len(), "most single bits are numbers and names: {read}");
}

/// A text of a test's own randomness: the same in every run.
fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 8) as usize
}

#[test]
fn files_of_pieces_that_do_not_belong_together_are_read_too() {
    let whole = [step(true), jax_step(256)];
    // More rounds by hand; what was found once is found by these.
    let rounds = std::env::var("WEIR_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let (mut state, mut read) = (0x9e37_79b9_7f4a_7c15, 0);
    for _ in 0..rounds {
        let mut file = whole[random(&mut state) % 2].clone();
        for _ in 0..=random(&mut state) % 4 {
            let (at, from) = (random(&mut state) % file.len(), random(&mut state) % file.len());
            let length = (random(&mut state) % 64).min(file.len() - from);
            let piece: Vec<u8> = file[from..from + length].to_vec();
            match random(&mut state) % 5 {
                0 => file[at] = random(&mut state) as u8,
                // The largest numbers, and lengths that reach beyond the end.
                1 => file[at] = 0xff,
                // As long as what was there, so that what lies around it still makes sense.
                2 => file.iter_mut().skip(at).zip(piece).for_each(|(to, from)| *to = from),
                3 => drop(file.splice(at..at, piece)),
                _ => drop(file.drain(at..(at + length).min(file.len() - 1).max(at))),
            }
        }
        if let Some(arena) = arena_of(&file) {
            read += 1;
            let parts = arena.parts.iter().fold(arena.rest, |sum, part| sum.saturating_add(part.bytes));
            assert_eq!(parts, arena.peak, "{file:?}");
            assert!(arena.named <= arena.peak && arena.lined <= arena.peak, "{file:?}");
        }
    }
    assert!(read > rounds / 20, "{read} of {rounds} were still modules");
}

#[test]
fn a_file_that_is_all_hub_ends() {
    // Every result is made from all of the others, and no instruction has a name.
    const MANY: u64 = 20_000;
    let ids: Vec<i64> = (1..=MANY as i64).collect();
    let (mut entry, mut assignment, mut arena) = (Message::new(), Message::new(), Message::new());
    arena.number(2, MANY * 8);
    for id in 1..=MANY {
        let operands = if id == 1 { &ids[..] } else { &ids[..1] };
        entry.message(2, &instruction(id as i64, "fusion", "", operands, &[8]).number(38, 1).clone());
        assignment.message(1, &buffer(id, 8, id as i64, &[]));
        let mut assigned = Message::new();
        assigned.number(1, id).number(2, id * 8);
        arena.message(9, &assigned);
    }
    entry.number(5, 1).number(6, 1);
    let (mut module, mut file) = (Message::new(), Message::new());
    module.message(3, &entry).number(6, 1);
    assignment.message(3, &arena);
    file.message(1, &module).message(3, &assignment);
    let module = Module::of(file.bytes()).expect("a module");
    let patience = Patience::new();
    let (pieces, _) = inside::at_peak(&module, &module.allocations[0], &patience);
    assert_eq!(pieces.len(), MANY as usize);
    assert!(pieces.iter().all(|piece| piece.op.is_empty()));
    assert!(!patience.has(1 << 27), "nothing was counted");
}

/// A step of JAX's: weights and examples are given, all lines are the program's own, and one result is computed twice.
fn jax_step(batch: u64) -> Vec<u8> {
    let mut entry = Message::new();
    let line = |id: i64, opcode: &str, op: &str, operands: &[i64], sides: &[u64], line: u64| {
        let mut made = instruction(id, opcode, op, operands, sides);
        let mut meta = Message::new();
        meta.text(2, op).text(3, "/me/step.py").number(4, line);
        made.message(7, &meta);
        made
    };
    entry.message(2, &instruction(1, "parameter", "", &[], &[784, 2048]));
    entry.message(2, &instruction(2, "parameter", "", &[], &[batch, 784]).number(9, 1).clone());
    entry.message(2, &instruction(8, "parameter", "", &[], &[]).number(9, 2).clone());
    entry.message(2, &line(3, "fusion", "jit(step)/jit(main)/jvp()/tanh", &[1, 2], &[batch, 2048], 18));
    let mut again = line(4, "fusion", "jit(step)/jit(main)/transpose(jvp())/dot_general", &[3], &[batch * 4, 512], 19);
    again.text(1, "loop_fusion.7.remat");
    entry.message(2, &again);
    // A line from the table of frames: JAX's own, called by the program's.
    let mut framed = instruction(5, "fusion", "jit(step)/jit(main)/transpose(jvp())/mul", &[3], &[784, 2048]);
    framed.message(7, Message::new().text(2, "jit(step)/jit(main)/transpose(jvp())/mul").number(15, 2));
    entry.message(2, &framed).number(5, 1).number(6, 5);
    let (mut frames, mut module, mut assignment, mut arena) =
        (Message::new(), Message::new(), Message::new(), Message::new());
    frames.text(1, "/v/lib/python3.11/site-packages/jax/_src/numpy/ufuncs.py").text(1, "/me/step.py").text(2, "loss");
    frames.message(3, Message::new().number(1, 2).number(2, 1).number(3, 23));
    frames.message(3, Message::new().number(1, 1).number(3, 99));
    frames.message(4, Message::new().number(1, 1)).message(4, Message::new().number(1, 2).number(2, 1));
    module.text(1, "jit_step").message(3, &entry).number(6, 1).message(17, &frames);
    let mut given = Message::new();
    given.number(2, batch * 784 * 4).number(5, 1).number(6, 1);
    for (id, instruction, bytes, at) in [
        (3, 3, batch * 2048 * 4, 0),
        (4, 4, batch * 2048 * 4, batch * 2048 * 4),
        (5, 5, 784 * 2048 * 4, batch * 2048 * 8),
    ] {
        assignment.message(1, &buffer(id, bytes, instruction, &[]));
        let mut assigned = Message::new();
        assigned.number(1, id).number(2, at);
        arena.message(9, &assigned);
    }
    arena.number(2, batch * 2048 * 8 + 784 * 2048 * 4);
    assignment.message(3, &given).message(3, &arena);
    let mut file = Message::new();
    file.message(1, &module).message(3, &assignment);
    file.bytes().to_vec()
}

#[test]
fn a_step_of_jax_has_its_programs_lines() {
    let arena = arena_of(&jax_step(256)).expect("a module");
    let parts: Vec<_> = arena.parts.iter().map(|part| (part.role, part.shape.as_str(), part.python.as_str())).collect();
    assert_eq!(
        parts,
        [
            (Role::Gradients, "f32[784,2048]", "/me/step.py:23"),
            (Role::Activations, "f32[256,2048]", "/me/step.py:18"),
            (Role::Gradients, "f32[1024,512]", "/me/step.py:19"),
        ]
    );
    assert_eq!((arena.function(), arena.parts[0].function.as_str()), ("step", "loss"));
    assert_eq!((arena.named, arena.lined), (arena.peak, arena.peak));
    assert_eq!(arena.recomputed, Recomputed { results: 1, bytes: 256 * 2048 * 4 });
    assert!(arena.parts.iter().any(|part| part.instruction == "loop_fusion.7.remat"));
}

#[test]
fn half_the_batch_needs_what_the_shapes_say() {
    let arena = |batch| arena_of(&jax_step(batch)).expect("a module");
    for batch in [256, 64] {
        let half = arena(batch).half_batch.expect("a batch");
        assert_eq!((half.batch, half.bytes), (batch / 2, arena(batch / 2).bytes));
    }
    assert_eq!(arena(256).fixed(), 784 * 2048 * 4);
    assert_eq!(arena(1).half_batch, None);
}

#[test]
fn shapes_that_refer_to_themselves_and_huge_numbers_end() {
    let mut entry = Message::new();
    let circle = instruction(5, "fusion", "", &[6, 5], &[u64::MAX; 40]).number(38, 1).clone();
    entry.message(2, &circle).message(2, &instruction(6, "copy", "", &[5], &[1])).number(5, 1).number(6, 5);
    let (mut module, mut assignment, mut arena) = (Message::new(), Message::new(), Message::new());
    module.message(3, &entry);
    arena.number(2, u64::MAX);
    for id in 1..3 {
        let mut assigned = Message::new();
        assigned.number(1, id).number(2, u64::MAX - id);
        arena.message(9, &assigned);
        assignment.message(1, &buffer(id, u64::MAX, 4 + id as i64, &[u64::MAX]));
    }
    let mut trace = Message::new();
    for (kind, id) in [(0, 1), (0, 2), (2, 2), (1, 2), (1, 1), (1, 1), (9, 1)] {
        trace.message(1, &event(kind, id, 1));
    }
    assignment.message(3, &arena).message(3, &arena).message(4, &trace);
    let mut file = Message::new();
    file.message(1, &module).message(3, &assignment);
    let arena = arena_of(file.bytes()).expect("readable");
    assert_eq!((arena.peak, arena.named, arena.total), (u64::MAX, 0, u64::MAX));
}

/// A journal whose job requested `requests` for a cluster, nodes with their lines, and an empty folder for XLA's files.
fn run(name: &str, requests: &[u64]) -> (PathBuf, Run) {
    let dir = std::env::temp_dir().join(format!("weir-xla-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("a folder");
    let mut job = Job::new(&dir, 1 << 10).expect("a journal");
    job.journal.set_device(0, [7; 16], 1 << 30, "GPU");
    let by = job.by("StatefulPartitionedCall", "xla", &[("/me/train.py", "<module>", 30)]);
    let made = job.by("", "", &[("/me/model.py", "call", 21)]);
    job.journal.node("model/conv/Conv2D", made.python);
    for bytes in requests {
        job.alloc(by, *bytes);
    }
    let path = job.end(End::Killed).expect("a journal");
    std::fs::create_dir(xla_folder(&path)).expect("a folder");
    (dir, Run::open(&path).expect("a journal"))
}

/// A journal of JAX's: nothing says which request is a step's.
fn jax_run(name: &str, requests: &[u64]) -> (PathBuf, Run) {
    let dir = std::env::temp_dir().join(format!("weir-xla-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("a folder");
    let mut job = Job::new(&dir, 1 << 10).expect("a journal");
    job.journal.set_device(0, [7; 16], 1 << 30, "GPU");
    let by = job.by("", "", &[("/me/step.py", "<module>", 34)]);
    for bytes in requests {
        job.alloc(by, *bytes);
    }
    let path = job.end(End::Killed).expect("a journal");
    std::fs::create_dir(xla_folder(&path)).expect("a folder");
    std::fs::write(xla_folder(&path).join("module_0001.jit_step.sm_8.0_gpu_after_optimizations.hlo.pb"), jax_step(256))
        .expect("written");
    (dir, Run::open(&path).expect("a journal"))
}

#[test]
fn requests_of_jax_are_steps_only_by_the_exact_size_and_where_no_array_has_it() {
    let size = arena_of(&jax_step(256)).expect("a module").bytes;
    for (name, requests, requested, live) in [
        ("jax", &[4096, size][..], true, true),
        // A little more is something else; JAX's own allocator has served the step.
        ("jax-near", &[size + 512], false, false),
    ] {
        let (dir, run) = jax_run(name, requests);
        let arenas = found(&run);
        let [arena] = &arenas[..] else { panic!("{name}: {arenas:?}") };
        assert_eq!((arena.requested, arena.live, arena.certain), (requested, live, true), "{name}");
        assert_eq!(arena.doubts().is_empty(), requested);
        let compiled = Compiled::of(&run).expect("readable").expect("a folder");
        let folded = String::from_utf8(exported(&run, export::Format::Folded, Some(&compiled))).expect("text");
        assert_eq!(folded.contains("transpose(jvp())/dot_general"), requested, "{folded}");
        std::fs::remove_dir_all(dir).expect("removed");
    }
    // An array of the examples' size is as large as a step's arena could be.
    let (dir, run) = jax_run("jax-array", &[256 * 784 * 4]);
    let folder = xla_folder(run.path());
    let small = folder.join("module_0002.jit_small.sm_8.0_gpu_after_optimizations.hlo.pb");
    let mut arena = Message::new();
    arena.number(2, 256 * 784 * 4);
    let (mut assignment, mut module, mut file) = (Message::new(), Message::new(), Message::new());
    assignment.message(3, &arena);
    module.text(1, "jit_small");
    std::fs::write(small, file.message(1, &module).message(3, &assignment).bytes()).expect("written");
    assert!(!found(&run)[0].certain);
    std::fs::remove_dir_all(dir).expect("removed");
}

fn found(run: &Run) -> Vec<Arena> {
    arenas(run, &Survey::of(run, None, |_, _| {}).expect("a survey"), 0, None)
}

#[test]
fn a_request_is_matched_with_its_module_and_lines() {
    let (dir, run) = run("matched", &[10_240, 400]);
    let folder = xla_folder(run.path());
    std::fs::write(folder.join("module_0001.a.sm_8.0_gpu_after_optimizations.hlo.pb"), step(true)).expect("written");
    let arenas = found(&run);
    let [arena] = &arenas[..] else { panic!("{arenas:?}") };
    assert!(arena.live && arena.certain && arena.exact);
    assert_eq!((arena.lined, arena.peak), (10_144, 10_144));
    assert!(arena.parts.iter().all(|part| part.python == "/me/model.py:21"), "{arena:?}");
    // Another module with an arena of the same size: nobody knows which it was.
    std::fs::write(folder.join("module_0002.b.sm_8.0_gpu_after_optimizations.hlo.pb"), step(true)).expect("written");
    assert!(!found(&run)[0].certain);
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn arenas_of_a_run_that_is_watched_are_found_when_xla_has_left_them() {
    let (dir, run) = run("watched", &[10_240]);
    let folder = xla_folder(run.path());
    let mut live = Live::default();
    let look = |live: &mut Live| {
        live.look(run.reader(), run.path(), [10_240, 400].into_iter());
        live.arena(10_240).map(|arena| (arena.certain, arena.parts.len()))
    };
    assert_eq!(look(&mut live), None);
    let file = folder.join("module_0001.a.sm_8.0_gpu_after_optimizations.hlo.pb");
    std::fs::write(&file, step(true)).expect("written");
    // Clocks of file systems tick slowly: this is another time for sure.
    let changed = |seconds| {
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        std::fs::File::open(&folder).and_then(|folder| folder.set_modified(time)).expect("a time");
    };
    changed(1);
    assert_eq!(look(&mut live), Some((true, 3)));
    // What was found stays: the job may go on to compile, and its files may go.
    std::fs::remove_file(file).expect("removed");
    changed(2);
    assert_eq!(look(&mut live), Some((true, 3)));
    assert_eq!(live.arena(400), None);
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn what_else_lies_in_the_folder_is_left_alone() {
    let (dir, run) = run("hostile", &[10_240]);
    let folder = xla_folder(run.path());
    let file = |name: &str| folder.join(format!("module_{name}.x.gpu_after_optimizations.hlo.pb"));
    assert_eq!(found(&run), []);
    std::os::unix::fs::symlink("/dev/zero", file("9")).expect("a link");
    std::fs::write(dir.join("elsewhere"), step(true)).expect("written");
    std::os::unix::fs::symlink(dir.join("elsewhere"), file("8")).expect("a link");
    std::fs::create_dir(file("7")).expect("a folder");
    std::fs::File::create(file("6")).and_then(|huge| huge.set_len(1 << 40)).expect("a file without content");
    std::fs::write(file("5"), [0xff; 4096]).expect("written");
    let whole = step(true);
    std::fs::write(file("4"), &whole[..whole.len() - 30]).expect("written");
    let _socket = std::os::unix::net::UnixListener::bind(file("3")).expect("a socket");
    assert_eq!(found(&run), []);
    std::fs::write(file("1"), whole).expect("written");
    assert_eq!(found(&run).len(), 1);
    // A folder that is a link is another run's.
    let moved = dir.join("moved");
    std::fs::rename(&folder, &moved).expect("renamed");
    std::os::unix::fs::symlink(&moved, &folder).expect("a link");
    assert_eq!(found(&run), []);
    std::fs::remove_dir_all(dir).expect("removed");
}

/// The fields of a message that have this number.
fn nested(message: &[u8], number: u64) -> impl Iterator<Item = wire::Value<'_>> {
    wire::fields(message).filter_map(Result::ok).filter(move |(field, _)| *field == number).map(|(_, value)| value)
}

fn bytes(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    nested(message, number).filter_map(|value| value.bytes().ok())
}

fn exported(run: &Run, format: export::Format, compiled: Option<&Compiled>) -> Vec<u8> {
    let mut made = Vec::new();
    let options = export::Options { compiled, ..export::Options::default() };
    export::write(run.reader(), format, options, &mut made, &mut |_, _| {}).expect("written");
    made
}

#[test]
fn exports_show_what_is_inside_and_add_up_as_before() {
    let (dir, run) = run("exports", &[10_240, 400]);
    let module = step(true);
    let folder = xla_folder(run.path());
    std::fs::write(folder.join("module_0001.a.sm_8.0_gpu_after_optimizations.hlo.pb"), &module).expect("written");
    let compiled = Compiled::of(&run).expect("readable").expect("a folder");
    let lines = |compiled| String::from_utf8(exported(&run, export::Format::Folded, compiled)).expect("text");
    let sum =
        |text: &str| -> u64 { text.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum() };
    let (whole, inside) = (lines(None), lines(Some(&compiled)));
    assert_eq!(sum(&whole), sum(&inside), "{inside}");
    assert!(sum(&whole) >= 10_640);
    assert!(!whole.contains("Conv2D"), "{whole}");
    for part in ["u8[4096] (workspaces) 4096", "f32[8,64] (activations) 4000", "f32[64,8] (parameters) 2048"] {
        let found = inside.lines().find(|line| line.ends_with(part)).unwrap_or_else(|| panic!("no {part} in {inside}"));
        assert!(found.contains("train.py:30") && found.contains(";model/conv/Conv2D "), "{found}");
    }

    let mut track = String::new();
    let zipped = exported(&run, export::Format::Heaptrack, Some(&compiled));
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&zipped[..]), &mut track).expect("text");
    let pairs: Vec<u64> = track
        .lines()
        .filter_map(|line| u64::from_str_radix(line.strip_prefix("a ")?.split(' ').next()?, 16).ok())
        .collect();
    let added = track.lines().filter_map(|line| usize::from_str_radix(line.strip_prefix("+ ")?, 16).ok());
    assert_eq!(added.filter_map(|pair| pairs.get(pair)).sum::<u64>(), sum(&whole), "{track}");
    assert!(pairs.contains(&4000) && track.contains("model/conv/Conv2D f32[8,64] (activations)"), "{track}");
    let viewed = exported(&run, export::Format::Memviz, Some(&compiled));
    let has = |text: &[u8]| viewed.windows(text.len()).any(|part| part == text);
    assert!(has(b"model/conv/Conv2D u8[4096] (workspaces)"));

    let space = exported(&run, export::Format::Xplane, Some(&compiled));
    let [host, metadata] = bytes(&space, 1).collect::<Vec<_>>()[..] else { panic!("two planes") };
    let line = bytes(host, 3).next().expect("a line");
    // Numbers of the stats that XProf adds up: bytes live, and bytes of each event.
    let number = |event, stat| -> u64 {
        let stats = bytes(event, 4).filter(|found| nested(found, 1).any(|id| id == wire::Value::Number(stat)));
        stats.filter_map(|found| nested(found, 4).next()?.number().ok()).sum()
    };
    let events: Vec<&[u8]> = bytes(line, 4).collect();
    let allocated: u64 = events.iter().map(|event| number(event, 7)).sum();
    assert_eq!(allocated, sum(&whole));
    assert_eq!(events.last().map(|event| number(event, 3)), Some(allocated), "all of it is live");
    // Three parts, what is between them, and the other request.
    assert_eq!(events.len(), 5);
    let times: Vec<u64> = events.iter().filter_map(|event| nested(event, 2).next()?.number().ok()).collect();
    assert!(times.is_sorted_by(|one, other| one < other), "{times:?}");
    let entry = bytes(metadata, 4).next().and_then(|entry| bytes(entry, 2).next()).expect("a module");
    let stat = bytes(entry, 5).next().expect("what XLA wrote");
    assert_eq!(bytes(stat, 6).next(), Some(&module[..]));
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn an_arena_that_may_be_another_is_exported_whole() {
    let (dir, run) = run("uncertain", &[10_240]);
    for name in ["1.a", "2.b"] {
        let name = format!("module_000{name}.sm_8.0_gpu_after_optimizations.hlo.pb");
        std::fs::write(xla_folder(run.path()).join(name), step(true)).expect("written");
    }
    let compiled = Compiled::of(&run).expect("readable").expect("a folder");
    let folded = exported(&run, export::Format::Folded, Some(&compiled));
    assert_eq!(folded, exported(&run, export::Format::Folded, None));
    std::fs::remove_dir_all(dir).expect("removed");
}
