"""`import weir` in jobs on the virtual GPU, with and without the library; `python -m weir`."""
import json
import re
import sys

from conftest import MIB, TESTS, environment, on_vgpu, run, under_weir, weir
from installed import package  # noqa: F401: a fixture
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

GPU = f"import sys; sys.path.insert(0, {str(TESTS / 'live')!r}); import job, weir; gpu = job.Gpu()\n"


def python(code, env, package, **more):
    return run(sys.executable, "-c", code, env={**env, "PYTHONPATH": str(package), **more})


def test_answers_are_those_of_the_job(package, weir_dir):
    code = GPU + """
print(weir.limit(), weir.peak())
gpu.take(64); gpu.take(32); gpu.drop()
print(weir.limit(), weir.peak(), weir.report(json=True)["driver"]["parts"][0][1])
"""
    done = python(code, under_weir(weir_dir, WEIR_CAP="512MiB"), package)
    first, second = done.stdout.splitlines()[-2:]
    assert second.split() == [str(512 * MIB), str(96 * MIB), str(64 * MIB)], (first, second)


def test_marks_and_regions_are_in_report_journal_and_page(package, weir_dir):
    code = "import weir; assert not weir.mark('too early'), 'there is no journal before the first context'\n" + GPU + """
with weir.region("input"):
    gpu.take(32)
weir.mark("epoch 1")
@weir.region("augment")
def augment():
    gpu.take(64); gpu.take(64); gpu.drop()
augment(); augment()
try:
    with weir.region("fails"):
        raise KeyError
except KeyError:
    pass
weir.mark("epoch 2 \\0 ä")
with weir.region("train"):
    while gpu.take(64):
        pass
    print(weir.report())
"""
    done = python(code, under_weir(weir_dir, WEIR_CAP="512MiB"), package)
    assert re.search(r'^Where +in train; \d+\.\d s after "epoch 2   .+"$', done.stdout, re.MULTILINE), done.stdout
    report = json.loads(weir("report", "--json", "--dir", weir_dir).stdout)
    assert [mark["name"] for mark in report["marks"]] == ["epoch 1", "epoch 2   ä"]
    regions = {region.pop("name"): region for region in report["regions"]}
    # Each run of it kept one block, and held a second one for a while.
    augment = regions["augment"]
    assert (augment["runs"], augment["open"], augment["kept"]) == (2, False, 128 * MIB)
    # Beside its context.
    assert 0 <= augment["peak"] - (32 + 64 + 64 + 64) * MIB < 32 * MIB
    assert regions["train"]["open"] and regions["train"]["runs"] == 1 and regions["fails"]["kept"] == 0
    tail = weir("tail", "--all", "--no-follow", "--json", "--kind", "region_begin,region_end,mark", "--dir", weir_dir).stdout
    said = [(event["kind"], event["op"]) for event in map(json.loads, tail.splitlines())]
    assert said[:3] == [("region_begin", "input"), ("region_end", "input"), ("mark", "epoch 1")], said
    assert said[3:7] == [("region_begin", "augment"), ("region_end", "augment")] * 2
    assert said[-1] == ("region_end", "train") and ("region_end", "fails") in said
    page = weir("report", "--html", "-", "--dir", weir_dir).stdout
    weir("export", "--to", "perfetto", "-o", weir_dir / "trace", "--dir", weir_dir)
    trace = perfetto.Trace()
    trace.ParseFromString((weir_dir / "trace").read_bytes())
    events = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]
    begins, ends = ([event.name for event in events if event.type == kind] for kind in (perfetto.TrackEvent.TYPE_SLICE_BEGIN, perfetto.TrackEvent.TYPE_SLICE_END))
    assert begins == ["input", "augment", "augment", "fails", "train"] and sorted(begins) == sorted(ends)
    assert '"kind":"region_begin"' in page and '"name":"augment"' in page and "in train" in page


def test_without_the_library_nothing_happens(package, tmp_path):
    code = GPU + """
gpu.take(64)
assert not weir.active()
assert weir.mark("epoch 1") is False
with weir.region("augment") as nothing:
    assert nothing is None
print(weir.limit(), weir.peak(), weir.report(), weir.status())
"""
    assert python(code, on_vgpu(), package).stdout.split() == ["None"] * 4


def test_the_module_is_the_command(package, tmp_path):
    done = run(sys.executable, "-m", "weir", "run", "--vgpu", "1GiB", "--", "sh", "-c", "exit 7",
               env=environment(PYTHONPATH=package, HOME=tmp_path), code=7)
    assert done.stdout == ""
    assert run(sys.executable, "-m", "weir", "--version", env=environment(PYTHONPATH=package)).stdout.startswith("weir ")
