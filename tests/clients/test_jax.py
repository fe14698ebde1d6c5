"""JAX refuses arrays without calling the driver: the report says what that rests on, and how every request can be seen. What it
compiles requests once for a whole step: the report shows what is inside."""
import json

import pytest
from conftest import STAGE, TESTS, python_of, run, under_weir, weir

HERE = TESTS / "clients"


@pytest.fixture(scope="module")
def python():
    return python_of("jax", HERE / "jax.txt", "3.11")


def played(python, folder, job, *arguments, code=0, **more):
    flags = f"--xla_gpu_cuda_data_dir={STAGE / 'vgpu/cuda'}"
    env = under_weir(folder, **{"VGPU_MEM": "2GiB", "JAX_PLATFORMS": "cuda", "XLA_FLAGS": flags, "WEIR_OOM_TEXT": "off", **more})
    return run(python, HERE / job, *arguments, env=env, code=code, timeout=600)


def report(python, folder, **more):
    """What the job printed, and the report of it."""
    done = played(python, folder, "jax_job.py", code=1, **more)
    return done.stderr, " ".join(weir("report", "--dir", folder).stdout.split())


def step(python, folder, batch, **more):
    """The report of the train step."""
    folder.mkdir(mode=0o700)
    played(python, folder, "jax_step.py", batch, WEIR_XLA="on", **more)
    return json.loads(weir("report", "--json", "--dir", folder, code=None).stdout)


def line(mark):
    return next(f"jax_step.py:{number}" for number, text in enumerate((HERE / "jax_step.py").read_text().splitlines(), 1) if text.endswith(f"# {mark}"))


@pytest.mark.long
def test_a_compiled_step_is_named_by_the_programs_lines(python, weir_dir):
    """With every request recorded, the arena is found by its exact size; with JAX's own allocator, its module is shown."""
    shown = step(python, weir_dir / "platform", 512, XLA_PYTHON_CLIENT_ALLOCATOR="platform")
    [arena] = shown["compiled"]
    assert arena["requested"] and arena["certain"] and arena["exact"] and arena["module"] == "jit_step"
    assert 0.95 * arena["peak"] <= arena["named"] and 0.9 * arena["peak"] <= arena["lined"], arena
    places = {part["python"].rpartition("/")[2] for part in arena["parts"]}
    assert {line("first"), line("second")} <= places, places
    roles = dict(arena["roles"])
    assert roles["activations"] > 0 and roles["gradients"] > 0, roles
    unseen = step(python, weir_dir / "own", 512)["compiled"]
    assert [arena["requested"] for arena in unseen] == [False] and unseen[0]["module"] == "jit_step"


@pytest.mark.long
def test_half_the_batch_is_foretold(python, weir_dir):
    whole, half = (step(python, weir_dir / str(batch), batch, XLA_PYTHON_CLIENT_ALLOCATOR="platform")["compiled"][0] for batch in (2048, 1024))
    assert whole["half_batch"]["batch"] == 1024
    assert abs(whole["half_batch"]["bytes"] - half["bytes"]) < 0.15 * half["bytes"], (whole["half_batch"], half["bytes"])


@pytest.mark.long
@pytest.mark.parametrize("ends", ["killed", "full"])
def test_the_inside_of_a_step_outlives_the_job(python, weir_dir, ends):
    """By SIGKILL after its steps, and where its arena does not fit."""
    if ends == "killed":
        played(python, weir_dir, "jax_step.py", 512, "killed", code=-9, WEIR_XLA="on", XLA_PYTHON_CLIENT_ALLOCATOR="platform")
    else:
        done = played(python, weir_dir, "jax_step.py", 16384, code=1, VGPU_MEM="640MiB", WEIR_XLA="on", XLA_PYTHON_CLIENT_ALLOCATOR="platform")
        assert "RESOURCE_EXHAUSTED" in done.stderr
    shown = json.loads(weir("report", "--json", "--dir", weir_dir, code=None).stdout)
    arena = shown["compiled"][0]
    assert arena["requested"] and arena["certain"] and arena["live"] == (ends == "full")
    if ends == "full":
        assert shown["request"]["compiled"] and shown["request"]["bytes"] == arena["bytes"]


@pytest.mark.long
def test_a_refusal_by_jax_itself_is_probable_and_not_denied(python, weir_dir):
    printed, said = report(python, weir_dir)
    assert "RESOURCE_EXHAUSTED" in printed
    assert "nothing was refused by the driver or by weir" in said and "probably full" in said, said
    assert "ended with status 1 and held 1.50 GiB in" in said and "jax_job.py:12" in said, said
    assert "XLA_PYTHON_CLIENT_ALLOCATOR=platform" in said, said


@pytest.mark.long
def test_every_request_of_jax_is_recorded_as_the_report_advises(python, weir_dir):
    printed, said = report(python, weir_dir, XLA_PYTHON_CLIENT_ALLOCATOR="platform")
    assert "RESOURCE_EXHAUSTED" in printed
    assert "GPU OUT OF MEMORY" in said and "Requested 64.0 MiB jax_job.py:12" in said, said
