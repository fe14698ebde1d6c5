"""A table of machines: each profile of the virtual GPU, and whether weir does what it should there.

usage: table.py [--only COLUMN,...] [PROFILE...]    prints the table and puts its cells into target/machines.tsv, where cells that
                                                    are not run stay; red if one that was run is. A profile may be a file

A cell is `ok`, with what had to be set where something had to, or the reason. The columns:

    bare         the portable rules of the conformance suite, by the driver alone
    under weir   the same under libweir.so with a cap; what weir breaks by design is known to weir gpu-check
    pool         the pool's random programs with content checks, under a small cap
    cap          memory is requested until it is refused, and the witness never sees more than the cap; without a cap, until
                 the device is full
    resnet50     ten train steps of ResNet50 in stock TensorFlow, under a cap. Where it ends with an error (a driver before CUDA 12): that it ends
                 in the same way without weir, and the steps with a newer driver
    gpu-check    the rest of weir gpu-check: doctor, probe, latencies; two devices copy to each other and wait for each other,
                 without weir and with it
"""
import fcntl
import functools
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import pytest  # noqa: E402
from conftest import GIB, MIB, ROOT, TESTS, on_vgpu, run, tensorflow, under_weir, weir  # noqa: E402

PROFILES = ["a100", "h100", "v100", "t4", "rtx4090", "gtx1080", "wsl2", "vgpu-guest", "mig-1g.10gb", "container", "no-p2p", "jetson"]
FILE = ROOT / "target/machines.tsv"
# How cells begin that are not red.
FINE = ("ok", "as without weir")
# The oldest driver that TensorFlow runs on.
NEWER = "12.2"
COLUMNS = ["bare", "under weir", "pool", "cap", "resnet50", "gpu-check"]


def checked(profile, folder, *steps):
    """Steps of weir gpu-check: what is new, and the file."""
    file = pathlib.Path(folder) / f"{steps[0]}.json.gz"
    peer = ["--peer", "1"] if "peers" in steps else []
    weir("gpu-check", "--device", "0", *peer, "--only", ",".join(steps), "--out", file, env=on_vgpu(VGPU_PROFILE=profile), code=None, timeout=620)
    found = json.loads(weir("gpu-check", "--read", file, "--print", "json", quiet=True).stdout)
    new = [f"{one['step']}: {one['what']}" for one in found["findings"] if not one["known"]]
    ran = {step["step"] for step in found["steps"] if step["end"] == "done" or "failed" in step["end"]}
    return new + [f"{step} did not run" for step in steps if step not in ran]


@functools.cache
def rules(profile):
    """The suite without weir and with it: two columns."""
    with tempfile.TemporaryDirectory(prefix="weir-table-") as folder:
        return checked(profile, folder, "conformance", "conformance-weir")


def capped(profile, folder):
    cap = 1 * GIB
    # Page tables are charged to nobody (docs/limits.md).
    run("python3", TESTS / "machines/pool.py", "capped", cap, quiet=True,
        env=under_weir(folder, VGPU_PROFILE=profile, VGPU_PAGE_TABLES=0, WEIR_CAP=cap, WEIR_RING="16K", WEIR_OOM_TEXT="off"))
    run("python3", TESTS / "machines/pool.py", "full", quiet=True,
        env=under_weir(folder, VGPU_PROFILE=profile, VGPU_BACKING="none", WEIR_RING="16K", WEIR_OOM_TEXT="off"))
    return []


def resnet50(profile, folder):
    python, variables = tensorflow()
    env = under_weir(folder, **variables, VGPU_PROFILE=profile, WEIR_CAP=6 * GIB, TF_CPP_MIN_LOG_LEVEL="3", WEIR_OOM_TEXT="off")
    env["LD_LIBRARY_PATH"] = variables.get("LD_LIBRARY_PATH", env["LD_LIBRARY_PATH"])
    job = [python, TESTS / "tensorflow/bench_job.py", "resnet50"]

    def ends(env):
        done = run(*job, env=env, code=None, timeout=900, quiet=True)
        lines = done.stderr.strip().splitlines()
        # An abort says why in a line of its own, behind the time and the thread, and then prints its stack.
        why = next((line.split("] ", 1)[-1] for line in lines if re.match(r"F\d", line)), lines[-1] if lines else "")
        return done, (done.returncode, why)

    for driver in ({}, {"VGPU_DRIVER": NEWER}):
        done, how = ends({**env, **driver})
        if how[0] == 0:
            peak = json.loads(done.stdout.splitlines()[-1])["physical_peak"]
            wrong = [] if 0 < peak <= 6 * GIB else [f"{peak // MIB} MiB under a cap of 6 GiB"]
            return wrong or (f"ok (driver {NEWER})" if driver else [])
        _, bare = ends({name: value for name, value in {**env, **driver}.items() if name not in ("LD_PRELOAD", "WEIR_CAP")})
        if bare != how:
            return [f"ends with {how}, without weir with {bare}"]
    return f"as without weir: {how[1]}"


def cell(profile, column, folder):
    """What is wrong, or what to say where all is well."""
    peers = ["peers", "peers-weir"] if profile == "no-p2p" else []
    if column in ("bare", "under weir"):
        return [found for found in rules(profile) if column == "under weir" or not found.startswith("conformance-weir")]
    if column == "pool":
        return checked(profile, folder, "pool")
    if column == "cap":
        return capped(profile, folder)
    if column == "resnet50":
        return resnet50(profile, folder)
    return checked(profile, folder, "doctor", "probe", "latency", *peers)


def put(profile, column, text):
    """Puts a cell into the file, beside other runs that do so; the whole table."""
    with open(FILE, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        head, *rows = [line.split("\t") for line in file.read().splitlines()] or [["profile"]]
        table = {name: dict(zip(head[1:], cells)) for name, *cells in rows}
        table.setdefault(profile, {})[column] = " ".join(text.split())
        names = [*PROFILES, *(name for name in table if name not in PROFILES)]
        table = {name: {column: table.get(name, {}).get(column, "–") for column in COLUMNS} for name in names}
        file.truncate(0)
        file.write("".join("\t".join(line) + "\n" for line in [["profile", *COLUMNS], *([name, *cells.values()] for name, cells in table.items())]))
    return table


def main(arguments):
    columns = COLUMNS
    if arguments[:1] == ["--only"]:
        columns, arguments = arguments[1].split(","), arguments[2:]
    # The virtual GPU takes what has a / in it for a file.
    arguments = [str(pathlib.Path(name).resolve()) if "/" in name else name for name in arguments]
    named = [name for name in arguments if "/" not in name]
    for word, known in [*((profile, PROFILES) for profile in named), *((column, COLUMNS) for column in columns)]:
        if word not in known:
            sys.exit(f"table.py: {word}: expected one of {', '.join(known)}")
    good = bad = 0
    for profile in arguments or PROFILES:
        for column in columns:
            with tempfile.TemporaryDirectory(prefix="weir-table-") as folder:
                try:
                    found = cell(profile, column, folder)
                except pytest.fail.Exception as failed:
                    found = [str(failed).splitlines()[0], *str(failed).strip().splitlines()[-1:]]
            text = found if isinstance(found, str) else "; ".join(found) or "ok"
            fine = text.startswith(FINE)
            good, bad = good + fine, bad + (not fine)
            table = put(profile, column, text)
            print(f"{profile}: {column}: {text}", flush=True)
    print("| profile | " + " | ".join(COLUMNS) + " |\n|---" + "|---" * len(COLUMNS) + "|")
    for profile, cells in table.items():
        print(f"| `{profile}` | " + " | ".join(text if text.startswith((*FINE, "–")) else "no" for text in cells.values()) + " |")
    print(f"{good} passed, {bad} failed")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
