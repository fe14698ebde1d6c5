"""`import weir` in jobs on the virtual GPU, with and without the library; `python -m weir`."""
import sys

from conftest import MIB, TESTS, environment, on_vgpu, run, under_weir
from installed import package  # noqa: F401: a fixture

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


def test_without_the_library_nothing_happens(package, tmp_path):
    code = GPU + """
gpu.take(64)
assert not weir.active()
print(weir.limit(), weir.peak(), weir.report(), weir.status())
"""
    assert python(code, on_vgpu(), package).stdout.split() == ["None"] * 4


def test_the_module_is_the_command(package, tmp_path):
    done = run(sys.executable, "-m", "weir", "run", "--vgpu", "1GiB", "--", "sh", "-c", "exit 7",
               env=environment(PYTHONPATH=package, HOME=tmp_path), code=7)
    assert done.stdout == ""
    assert run(sys.executable, "-m", "weir", "--version", env=environment(PYTHONPATH=package)).stdout.startswith("weir ")
