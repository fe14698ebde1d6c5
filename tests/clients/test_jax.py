"""JAX refuses arrays without calling the driver: the report says what that rests on, and how every request can be seen."""
import pytest
from conftest import STAGE, TESTS, python_of, run, under_weir, weir

HERE = TESTS / "clients"


@pytest.fixture(scope="module")
def python():
    return python_of("jax", HERE / "jax.txt", "3.11")


def report(python, folder, **more):
    """What the job printed, and the report of it."""
    flags = f"--xla_gpu_cuda_data_dir={STAGE / 'vgpu/cuda'}"
    env = under_weir(folder, VGPU_MEM="2GiB", JAX_PLATFORMS="cuda", XLA_FLAGS=flags, WEIR_OOM_TEXT="off", **more)
    done = run(python, HERE / "jax_job.py", env=env, code=1, timeout=300)
    return done.stderr, " ".join(weir("report", "--dir", folder).stdout.split())


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
