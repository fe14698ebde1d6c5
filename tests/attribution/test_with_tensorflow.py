"""Who requested memory in stock TensorFlow: operations and Python lines in the journal; every allocator under a cap; wrong guesses."""
import collections
import json
import math
import re
from types import SimpleNamespace

import pytest
from conftest import MIB, TESTS, TENSORFLOW_RELEASES as RELEASES, tensorflow, tensorflow_marks as marks
from journals import JOBS, blocks, recorded

NEWEST, OLDEST = RELEASES[0], RELEASES[-1]
KEEP = {"WEIR_TF_ALLOCATOR": "keep"}
MODES = {
    "pool": {}, "keep": KEEP, "growth": KEEP, "limit": KEEP, "logical": KEEP, "fraction": {**KEEP, "FRACTION": "0.9"},
    "fraction_over": {**KEEP, "FRACTION": "2.0"}, "cuda_malloc": {"TF_GPU_ALLOCATOR": "cuda_malloc"},
    "async": {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}, "pool_growth": {}, "pool_limit": {}, "pool_logical": {},
    "pool_fraction": {"FRACTION": "0.9"}, "pool_fraction_over": {"FRACTION": "2.0"},
}
# Seen with the oldest release too; the first two with those between.
OLD_MODES = ["pool", "growth", "keep", "limit", "logical", "cuda_malloc"]


def cases(*rows, brief=(), packed=False):
    """Parameters of (release, ...): named, and marked as long unless they belong to a default run. Packed: one value each."""
    named = lambda row: "-".join(["-python".join(row[0]), *(f"{part // MIB}MiB" if isinstance(part, int) else part for part in row[1:])])
    return [pytest.param(*([row] if packed else row), id=named(row), marks=marks(row[0], long=row[1:] not in brief or row[0] != NEWEST)) for row in rows]


def job(folder, release, name, **more):
    """Runs a job under weir with a TensorFlow."""
    python, variables = tensorflow(release)
    return recorded(folder, python, JOBS / name, PYTHONPATH=TESTS / "tensorflow", **{**variables, **more})


def share(events, good):
    """The share of bytes that good events have."""
    return sum(event["allocated"] for event in events if good(event)) / sum(event["allocated"] for event in events)


def names_layer_or_user(event):
    return any("/keras/src/layers/" in line or "/keras/layers/" in line or "resnet.py:" in line or "mode.py:" in line
               for line in event["python"])


LINES = [(r"block(_\d+)?/MatMul", "tf.matmul(x, self.w)"), (r"block(_\d+)?/Gelu/\w+", "tf.nn.gelu(x)"),
         (r"gradient_tape/block(_\d+)?/MatMul/MatMul(_1)?", "tf.matmul(x, self.w)"), (r"while/add", "tf.exp(y) + 1.0")]


@pytest.fixture(scope="module", params=cases(*((release, kind) for release in RELEASES for kind in ("pool", "keep")), brief=[("pool",)], packed=True))
def resnet(request, tmp_path_factory):
    """Train steps of ResNet50, with weir's pool behind each tensor and with TensorFlow's own allocator."""
    release, allocator = request.param
    more, kind = (KEEP, "tensor") if allocator == "keep" else ({}, "block")
    _, events = job(tmp_path_factory.mktemp("weir"), release, "resnet.py", **more)
    steps = [event["seq"] for event in events if event["kind"] == "step"]
    return SimpleNamespace(events=events, steps=steps, taken=[event for event in events if event["kind"] == "alloc" and event["class"] == kind])


def at(code):
    """How a line of the job is named."""
    path = JOBS / "resnet.py"
    return f"{path}:{1 + next(n for n, line in enumerate(path.read_text().splitlines()) if code in line)} in "


def test_steps_are_recorded(resnet):
    assert len(resnet.steps) >= 5


def test_95_percent_of_a_steps_bytes_have_an_operation(resnet):
    step = [event for event in resnet.taken if resnet.steps[1] < event["seq"] < resnet.steps[3]]
    assert share(step, lambda event: event["op"]) >= 0.95


def test_90_percent_of_a_steps_bytes_have_a_line_of_the_user_or_a_layer(resnet):
    step = [event for event in resnet.taken if resnet.steps[1] < event["seq"] < resnet.steps[3]]
    assert share(step, names_layer_or_user) >= 0.90


def test_what_libraries_take_is_apart(resnet):
    """What cuBLAS and cuDNN take for their handles is neither a tensor nor a region of TensorFlow's."""
    library = [event["requested"] for event in resnet.events if event["kind"] == "alloc" and event["class"] in ("block", "device")
               and event["region"] == "library"]
    assert 8 * MIB in library and max(library) == 8 * MIB and sum(library) < 64 * MIB, sorted(library)[-9:]


def test_an_eager_tensor_has_the_line_that_requested_it(resnet):
    last = [event for event in resnet.taken if event["requested"] == 123 * 457 * 4]
    assert last and all(any(line.startswith(at("kept = ")) for line in event["python"]) for event in last), last


@pytest.mark.parametrize("operation, code", LINES, ids=["matmul", "gelu", "gradient", "loop"])
def test_a_node_of_a_graph_has_the_line_that_made_it(resnet, operation, code):
    found = [event for event in resnet.taken if re.search(f"(^|(Call|_\\d+)/){operation}$", event["op"])]
    assert found, sorted({event["op"] for event in resnet.taken if event["seq"] > resnet.steps[-2]})
    for event in found:
        assert any(line.startswith(at(code)) for line in event["python"]), event


def test_shapes_and_types_are_recorded(resnet):
    shaped = [event for event in resnet.taken if event["shape"] and re.search(r"(^|Call/)block(_\d+)?/MatMul$", event["op"])]
    assert shaped and all(event["shape"] == "[32,96]" and event["dtype"] == 1 for event in shaped), shaped


@pytest.fixture(scope="module", params=cases(*((release,) for release in RELEASES), brief=[()], packed=True))
def copies(request, tmp_path_factory):
    """Constants, copies and what TensorFlow's own threads allocate for a call from Python."""
    _, events = job(tmp_path_factory.mktemp("weir"), request.param[0], "copies.py")
    source = (JOBS / "copies.py").read_text().splitlines()
    lines = {line.split("  # ")[1]: f"{JOBS / 'copies.py'}:{number} in " for number, line in enumerate(source, 1) if "  # " in line}
    return SimpleNamespace(lines=lines, taken=blocks(events))


def from_line(copies, what, events):
    """Whether there are events, all from the line of that name."""
    return events and all(any(line.startswith(copies.lines[what]) for line in event["python"]) for event in events)


CONSTANTS = [("float64", 2, "[301,203]", 8), ("int64", 9, "[70001]", 8), ("float16", 19, "[3,5,7,911]", 2)]


@pytest.mark.parametrize("what, dtype, shape, width", CONSTANTS, ids=[case[0] for case in CONSTANTS])
def test_a_constant_has_its_type_and_shape(copies, what, dtype, shape, width):
    size = width * math.prod(json.loads(shape))
    found = [event for event in copies.taken if event["op"] == "_EagerConst" and event["requested"] == size]
    assert from_line(copies, what, found), found
    assert {(event["dtype"], event["shape"]) for event in found} == {(dtype, shape)}


def test_an_input_that_is_copied_for_an_eager_operation_has_its_type_and_shape(copies):
    found = [event for event in copies.taken if event["op"] == "Square" and event["region"] == "dynamic"]
    assert from_line(copies, "moved", found) and {(event["dtype"], event["shape"]) for event in found} == {(1, "[513,701]")}, found


def test_a_copy_between_devices_has_name_and_line_of_what_is_copied(copies):
    assert not any(event["op"] == "SameWorkerRecvDone" for event in copies.taken)
    for what, op, shape in (("sent", "random_uniform/RandomUniform", "[613,499]"), ("batch", "IteratorGetNext", "[16,1117]")):
        found = [event for event in copies.taken if event["op"] == op and event["region"] == "copy"]
        assert from_line(copies, what, found) and {event["shape"] for event in found} == {shape}, found


def test_a_recurrent_network_has_the_line_that_calls_it(copies):
    """Its kernel runs on a thread of TensorFlow's own, also where the call is eager."""
    found = [event for event in copies.taken if re.fullmatch(r"CudnnRNN(V3)?", event["op"])]
    lines = {what: [event for event in found if from_line(copies, what, [event])] for what in ("recurrent", "forward", "layer")}
    assert lines["recurrent"] and lines["forward"] and sum(map(len, lines.values())) == len(found), found
    assert from_line(copies, "backward", [event for event in copies.taken if re.fullmatch(r"CudnnRNNBackprop(V3)?", event["op"])])


def test_the_gradient_of_a_recurrent_network_has_the_line_of_its_layer(copies):
    found = [event for event in copies.taken if re.search(r"gradient.*/CudnnRNNBackprop(V3)?$", event["op"])]
    assert from_line(copies, "layer", found), found


@pytest.mark.parametrize("release", cases(*((release,) for release in RELEASES)))
def test_host_tensors_have_lines_and_a_pipeline_has_no_steps(weir_dir, release):
    done, events = job(weir_dir, release, "host.py")
    said = json.loads(done.stdout)
    mine = [event for event in events if event["class"] == "host_tensor" and event["allocated"] == said["size"]]
    assert all(event["device"] == 63 for event in mine)
    for what, stays in (("keeping", True), ("copying", False)):
        line = f"{JOBS / 'host.py'}:{said[what]} in <module>"
        made, gone = ([event for event in mine if event["kind"] == kind and line in event["python"]] for kind in ("alloc", "free"))
        assert (len(made), len(gone)) == (3, 0 if stays else 3), (what, line, mine)
    assert any(event["allocated"] == 4 * 2 * said["size"] for event in events if event["class"] == "host_tensor"), "no batch"
    assert not any(event["kind"] == "step" for event in events)


@pytest.mark.parametrize("release", cases(*((release,) for release in RELEASES)))
def test_what_xla_takes_for_a_step_has_its_node_and_line(weir_dir, release):
    done, events = job(weir_dir, release, "compiled.py")
    said, taken = json.loads(done.stdout), blocks(events)
    arenas = [event for event in taken if event["region"] == "xla"]
    line = f"{JOBS / 'compiled.py'}:{said['training']} in <module>"
    assert len(arenas) >= said["steps"] and all(event["op"] and line in event["python"] for event in arenas), arenas[:1]
    assert share(taken, lambda event: event["op"] and event["python"]) >= 0.95
    assert sum(event["kind"] == "step" for event in events) == said["steps"]


@pytest.mark.parametrize("release", cases(*((release,) for release in RELEASES)))
def test_a_mirrored_job_has_its_line_on_both_devices(weir_dir, release):
    """Threads that TensorFlow has for each device build graphs for a line of the user's."""
    done, events = job(weir_dir, release, "mirrored.py", VGPU_DEVICES="2")
    line = f"{JOBS / 'mirrored.py'}:{json.loads(done.stdout)['training']} in <module>"
    for device in (0, 1):
        products = [event for event in blocks(events) if event["device"] == device and ("MatMul" in event["op"] or "Relu" in event["op"])]
        assert products and all(line in event["python"] for event in products), device
        assert any("/layers/" in frame for event in products for frame in event["python"]), (device, products[:1])


@pytest.mark.parametrize("release", cases(*((release,) for release in RELEASES)))
def test_chunks_of_tensorflows_allocator_are_what_it_says(weir_dir, release):
    """With BFC kept: what a tensor got is what TensorFlow says, and what it tried for in vain has its line."""
    done, events = job(weir_dir, release, "chunks.py", code=7, **KEEP, VGPU_MEM="2GiB")
    said = json.loads(done.stdout)
    assert "No algorithm worked" in said["failed"] and said["given"] > said["requested_bytes"] + 64 * MIB, said
    assert [event["allocated"] for event in events if event["kind"] == "alloc" and event["class"] == "tensor"
            and event["requested"] == said["requested_bytes"]] == [said["given"]]
    tries = [event for event in events if event["kind"] == "attempt"]
    line = f"{JOBS / 'chunks.py'}:{said['line']} in <module>"
    assert tries and all(event["op"] and event["requested"] and line in event["python"] for event in tries), tries
    assert not any(event["kind"] == "oom" for event in events)
    assert (events[-1]["kind"], events[-1]["result"]) == ("exit", 7)


ANNOTATIONS = ["annotation:other", "annotation:op:8", "annotation:region:8,annotation:shape:16"]
FUNCTIONS = ["python:frame_functions:8", "python:function_attributes:8", "python:function_attributes:-64"]


@pytest.mark.parametrize("release, fault", cases(*((release, fault) for release in RELEASES for fault in ANNOTATIONS + FUNCTIONS)))
def test_a_job_goes_on_whatever_is_believed_of_tensorflow(weir_dir, release, fault):
    if fault in FUNCTIONS:
        job(weir_dir, release, "rewritten.py", library="lib-faults", WEIR_FAULT=fault)
    else:
        job(weir_dir, release, "mode.py", library="lib-faults", WEIR_FAULT=fault, MODE="async", CAP=64 * MIB, WEIR_CAP="64MiB")


def modes_of(release):
    return MODES if release == NEWEST else OLD_MODES if release == OLDEST else OLD_MODES[:2]


def capped(folder, release, mode, cap, **how):
    return job(folder, release, "mode.py", MODE=mode.replace("pool_", ""), CAP=cap, WEIR_CAP=cap, **MODES[mode], **how)


@pytest.mark.parametrize("release, mode", cases(*((release, mode) for release in RELEASES for mode in modes_of(release))))
def test_an_allocator_under_a_cap(weir_dir, release, mode):
    """Never above it, most of it usable, refused in TensorFlow's own way."""
    cap = 512 * MIB
    done, events = capped(weir_dir, release, mode, cap)
    said = json.loads(done.stdout)
    assert said["most"] <= cap and said["refused"] > 0, said
    # BFC keeps a reserve of its own below 2 GiB, and rounds.
    assert said["kept"] * said["size"] >= (0.4 if mode != "async" and "pool" not in mode else 0.8) * cap, said
    tensors = {"tensor" if mode in ("keep", "growth", "limit", "logical", "fraction", "fraction_over") else "block", "device"}
    taken = [event for event in events if event["kind"] == "alloc" and event["class"] in tensors and event["requested"] == said["size"]]
    assert len(taken) >= said["kept"] and all(event["op"] and names_layer_or_user(event) for event in taken), (len(taken), taken[:1])
    assert any(event["kind"] == "oom" for event in events), collections.Counter(event["kind"] for event in events)


TINY = [(NEWEST, mode, mib * MIB) for mode in ("growth", "pool") for mib in (1, 2, 3, 5, 8, 16)]
TINY += [(NEWEST, mode, MIB) for mode in MODES if mode not in ("growth", "pool")] + [(release, "growth", MIB) for release in RELEASES[1:]]


@pytest.mark.parametrize("release, mode, cap", cases(*TINY, brief=[("growth", MIB)]))
def test_a_cap_that_next_to_nothing_fits_into_ends_in_a_refusal(weir_dir, release, mode, cap):
    """Not in a hang, and it is kept."""
    done, events = capped(weir_dir, release, mode, cap, code=None, timeout=400)
    assert done.returncode >= 0, f"killed by signal {-done.returncode}"
    if done.returncode == 0:
        said = json.loads(done.stdout)
        assert said["refused"] > 0 and said["most"] <= cap, said
        assert any(event["kind"] == "oom" for event in events)
    else:
        # Below its own reserve TensorFlow's allocator gives up before it calls the driver.
        assert "allocat" in done.stderr
