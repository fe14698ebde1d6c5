"""The inside of XLA's arenas: what the report shows of compiled Keras steps, against XLA's own memory-usage report of the same
compilation; jobs that are killed and that run out of memory; what becomes of the job's own XLA_FLAGS."""
import json
import re
import subprocess

import pytest
from conftest import MIB, ROOT, TENSORFLOW_RELEASES, TESTS, environment, run, tensorflow, tensorflow_marks, under_weir, until, weir

HERE = TESTS / "tensorflow/compiled"
MODELS = ["resnet", "transformer", "lstm"]
RELEASES = [release for release in TENSORFLOW_RELEASES if release != ("2.21.0", "3.13")]
SMALL = HERE / "small.py"
# Devices on which a step's arena does not fit, and what is needed before does.
FULL = {"resnet": "320MiB", "transformer": "64MiB", "lstm": "48MiB"}
# The nodes that launch what is compiled.
LAUNCHERS = ("StatefulPartitionedCall", "PartitionedCall")


def play(folder, job, *arguments, release=None, code=0, flags="", **more):
    """Runs a job under the library alone, as LD_PRELOAD does; its journal."""
    python, variables = tensorflow(release) if release else tensorflow()
    variables["XLA_FLAGS"] = f"{variables['XLA_FLAGS']} {flags}".strip()
    env = under_weir(folder, **{**variables, "TF_CPP_MIN_LOG_LEVEL": "2", "VGPU_MEM": "16GiB", **more})
    done = run(python, job, *arguments, env=env, code=code, timeout=900)
    [journal] = folder.glob("*.weir")
    return journal, done


def kill_in_a_step(folder, job, release=None, flags=""):
    """Kills a job while its step's arena is live. A loop of XLA's own ends by what kernels compute, which compute nothing
    here: so does a job of some releases that may end instead."""
    python, variables = tensorflow(release) if release else tensorflow()
    variables["XLA_FLAGS"] = f"{variables['XLA_FLAGS']} {flags}".strip()
    env = under_weir(folder, **{**variables, "TF_CPP_MIN_LOG_LEVEL": "2", "VGPU_MEM": "16GiB"})
    job = subprocess.Popen([python, job, "killed"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def live():
        if job.poll() is not None:
            assert job.returncode == 0
            return True
        # What is live of the node that launches the cluster is its arena.
        journals = list(folder.glob("*.weir"))
        holders = report(journals[0])["holders"] if journals else []
        return any(holder["op"] in LAUNCHERS and holder["bytes"] > 32 * MIB for holder in holders)

    try:
        until(live, "a compiled step", 600)
    finally:
        job.kill()
        job.wait()
    [journal] = folder.glob("*.weir")
    return journal


def report(journal):
    return json.loads(weir("report", "--json", journal, code=None, timeout=300).stdout)


def line(job, mark):
    return next(f"{job.name}:{number}" for number, text in enumerate(job.read_text().splitlines(), 1) if text.endswith(f"# {mark}"))


@pytest.mark.parametrize("ends", [pytest.param("killed", marks=tensorflow_marks(long=False)), pytest.param("full", marks=tensorflow_marks(long=True))])
def test_the_inside_of_an_arena_outlives_the_job(weir_dir, ends):
    """However the job ends: by SIGKILL after its first step, or because its arena does not fit."""
    if ends == "killed":
        journal, _ = play(weir_dir, SMALL, "killed", code=-9)
        shown = report(journal)
    else:
        journal, _ = play(weir_dir, ROOT / "examples/oom/compiled.py", code=1, VGPU_MEM="512MiB")
        shown = report(journal)
        assert shown["request"]["compiled"] and shown["compiled"][0]["bytes"] == shown["request"]["bytes"]
        screen = weir("report", journal, code=None, env=environment(COLUMNS="100", NO_COLOR="1")).stdout
        assert re.search(r"Compiled +one_step_on_data: .* of which .* activations \(compiled\.py:\d+\)", " ".join(screen.split())), screen
    arena = shown["compiled"][0]
    assert arena["certain"] and arena["exact"] and arena["live"] == (ends == "full")
    assert 0.95 * arena["peak"] <= arena["named"] and 0.9 * arena["peak"] <= arena["lined"], arena
    assert arena["peak"] <= arena["bytes"] <= arena["total"]
    assert sum(part["bytes"] for part in arena["parts"]) + arena["rest"] == arena["peak"] == sum(size for _, size in arena["roles"])
    places = {part["python"].rpartition("/")[2] for part in arena["parts"]}
    assert ends == "full" or {line(SMALL, "first"), line(SMALL, "second")} <= places, places
    folder = journal.with_suffix(".xla")
    assert folder.stat().st_mode & 0o777 == 0o700
    left = [file.name for file in folder.iterdir()]
    assert left and all(name.endswith("gpu_after_optimizations.hlo.pb") for name in left), left


@pytest.mark.parametrize("ends", ["killed", "full"])
@pytest.mark.parametrize("model", [pytest.param(model, marks=tensorflow_marks(long=True)) for model in MODELS])
def test_the_inside_of_each_models_arena_outlives_it(weir_dir, model, ends):
    """By SIGKILL inside of a step, or because its arena does not fit."""
    if ends == "killed":
        journal = kill_in_a_step(weir_dir, HERE / f"{model}.py")
    else:
        journal, _ = play(weir_dir, HERE / f"{model}.py", code=None, VGPU_MEM=FULL[model], WEIR_OOM_TEXT="off")
    shown = report(journal)
    arena = max(shown["compiled"], key=lambda arena: arena["bytes"])
    assert arena["requested"] and arena["certain"] and arena["exact"]
    if ends == "full":
        assert shown["request"]["compiled"] and shown["request"]["bytes"] == arena["bytes"], shown["request"]
    assert 0.95 * arena["peak"] <= arena["named"] and 0.9 * arena["peak"] <= arena["lined"], arena


def totals(folder):
    """What XLA's own reports say that each module uses."""
    found = {}
    for path in folder.glob("*memory-usage-report.txt"):
        found[path.name.split(".")[0]] = int(re.search(r"Total bytes used: (\d+)", path.read_text())[1])
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("release", [pytest.param(release, id=release[0], marks=tensorflow_marks(release, long=True)) for release in RELEASES])
def test_compiled_models_are_named_and_add_up_to_xlas_own_report(weir_dir, tmp_path, release, model):
    """The job's own dumps, in both forms, put beside its journal: the report and XLA speak of the same compilation."""
    own = tmp_path / "own"
    flags = f"--xla_dump_to={own} --xla_dump_hlo_as_proto --xla_dump_hlo_as_text"
    if model == "lstm":
        journal = kill_in_a_step(weir_dir, HERE / "lstm.py", release, flags)
    else:
        journal, _ = play(weir_dir, HERE / f"{model}.py", release=release, flags=flags)
    assert not journal.with_suffix(".xla").exists(), "the job's own flags were changed"
    own.rename(journal.with_suffix(".xla"))
    arena = max(report(journal)["compiled"], key=lambda arena: arena["bytes"])
    print(arena["module"], arena["bytes"], arena["peak"], arena["named"] / arena["peak"], arena["lined"] / arena["peak"])
    said = totals(journal.with_suffix(".xla"))
    if said:  # 2.15 writes no such report
        assert arena["total"] in said.values(), (arena["total"], said)
    assert arena["exact"] and arena["peak"] <= arena["bytes"]
    assert 0.95 * arena["peak"] <= arena["named"], arena["parts"]
    assert 0.9 * arena["peak"] <= arena["lined"], arena["parts"]


@pytest.mark.parametrize("model", [pytest.param(model, marks=tensorflow_marks(long=True)) for model in ["small", *MODELS]])
def test_a_step_is_a_graph_of_cudas_and_its_arena_is_shown(weir_dir, tmp_path, model):
    """XLA puts all that it can into CUDA graphs (command buffers), calls of libraries too: none of them is empty."""
    flags = "--xla_gpu_graph_min_graph_size=1 --xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONDITIONAL"
    trace = tmp_path / "calls"
    journal, done = play(weir_dir, HERE / f"{model}.py", flags=flags, VGPU_TRACE=trace)
    assert "graph is empty" not in done.stderr, done.stderr[-4000:]
    calls = trace.read_text()
    assert '"fn":"cuGraphLaunch"' in calls and '"fn":"cuGraphInstantiate' in calls
    shown = report(journal)
    arena = max(shown["compiled"], key=lambda arena: arena["bytes"])
    assert arena["requested"] and arena["certain"] and arena["exact"]
    assert 0.95 * arena["peak"] <= arena["named"] and 0.9 * arena["peak"] <= arena["lined"], arena


@pytest.mark.parametrize("setting", [pytest.param("off", marks=tensorflow_marks(long=True))])
def test_switched_off_nothing_is_written(weir_dir, setting):
    journal, _ = play(weir_dir, SMALL, WEIR_XLA=setting)
    assert not journal.with_suffix(".xla").exists() and report(journal)["compiled"] == []


@pytest.mark.parametrize("release", [pytest.param(release, id=release[0], marks=tensorflow_marks(release, long=True)) for release in RELEASES])
def test_the_text_of_the_code_is_left_out_of_weirs_files_only(weir_dir, tmp_path, release):
    own = tmp_path / "own"
    kinds = []
    for flags, folder in [("", weir_dir / "first"), (f"--xla_dump_to={own} --xla_dump_hlo_as_proto", weir_dir / "second")]:
        folder.mkdir()
        _, done = play(folder, HERE / "text.py", release=release, flags=flags)
        left = done.stdout.split()
        assert any(name.endswith("gpu_after_optimizations.hlo.pb") for name in left), left
        assert all(name.startswith(f"{own if flags else folder}/") for name in left), left
        kinds.append({name.rpartition(".")[2] for name in left})
    assert not kinds[0] & {"ll", "ptx"} and {"ll", "ptx"} <= kinds[1], kinds
