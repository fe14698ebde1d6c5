"""NVIDIA's own runtime libraries, from PyPI, under libweir.so: every allocation function that they look up is weir's."""
import json
import os
import pathlib
import re
import sys

import pytest
from conftest import STAGE, TESTS, environment, on_vgpu, run

CACHE = pathlib.Path(os.environ.get("WEIR_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weir")
RUNTIMES = {"12": ("nvidia-cuda-runtime-cu12==12.9.79", "nvidia/cuda_runtime/lib"), "13": ("nvidia-cuda-runtime==13.4.92", "nvidia/cu13/lib")}


def library_folder(version):
    spec, home = RUNTIMES[version]
    folder = CACHE / "headers" / spec.replace("==", "-")
    if not folder.exists():
        run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, spec, timeout=600, env=dict(os.environ))
    return folder / home


def compiled(folder, name, *flags):
    program = folder / name
    run("cc", "-O1", "-w", "-pthread", f"-I{TESTS / 'preload'}", "-o", program, TESTS / f"preload/programs/{name}.c", *flags, env=environment())
    return program


def base(symbol):
    """A symbol without its version and stream variant."""
    return re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", symbol)


@pytest.mark.parametrize("version", RUNTIMES)
@pytest.mark.parametrize("kind", ["shared", "static"])
def test_runtime(version, kind, tmp_path):
    lib = library_folder(version)
    if kind == "shared":
        command = [compiled(tmp_path, "shared_runtime", "-ldl"), lib / f"libcudart.so.{version}"]
    else:
        command = [compiled(tmp_path, "static_runtime", lib / "libcudart_static.a", "-lrt", "-ldl", "-lstdc++")]

    def process(**more):
        """The program; descriptor 3 gets weir's status."""
        script = ["bash", "-c", 'exec "$@" 3>status', "bash", *command]
        return run(*script, cwd=tmp_path, code=None, env=on_vgpu(VGPU_DRIVER="13.4", HOME=tmp_path, **more))

    under_weir = dict(LD_PRELOAD=STAGE / "lib/libweir.so", WEIR_POOL="off", WEIR_JOURNAL="off")
    bare, under = process(), process(**under_weir, VGPU_TRACE=tmp_path / "trace")
    # The same up to its refusal: the virtual GPU does not answer the runtime's integrity check.
    assert (bare.stdout, bare.stderr, bare.returncode) == (under.stdout, under.stderr, under.returncode)
    status = json.loads([line for line in (tmp_path / "status").read_text().splitlines() if line.startswith("{")][-1])
    assert status["off"] is None
    calls = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    lookups = [call["args"] for call in calls if call["fn"].startswith("cuGetProcAddress") and call["result"] == "CUDA_SUCCESS"]
    names = {(args.get("*symbol") or args["symbol"], args["driver_version"], args["flags"]) for args in lookups}
    wrapped, passed = (status["proc_address"][key] for key in ("wrapped", "passed"))
    hooked = {base(hook["symbol"]) for hook in status["driver"]["hooks"]}
    lost = {name for name, _, _ in names if name in hooked} - {base(symbol) for symbol in wrapped}
    assert len(names) > 100 and "cuMemAlloc_v2" in wrapped
    assert not lost and not [symbol for symbol in passed if base(symbol) in hooked]
