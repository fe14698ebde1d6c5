"""A table of machines: each profile of the virtual GPU, and whether weir does what it should there.

usage: table.py [--without COLUMN] [PROFILE...]      prints the table and writes it to target/machines.tsv; red if a cell is

A cell is `ok` or the reason. The columns:

    bare         the portable rules of the conformance suite, by the driver alone
    under weir   the same under libweir.so with a cap; what weir breaks by design is known to weir gpu-check
    pool         the pool's random programs with content checks, under a small cap
    cap          memory is requested until it is refused, and the witness never sees more than the cap
    resnet50     ten train steps of ResNet50 in stock TensorFlow, under a cap; where TensorFlow finds no GPU without weir (a
                 driver before CUDA 12), that it ends in the same way under weir
    gpu-check    the rest of weir gpu-check: doctor, probe, latencies; two devices copy to each other
"""
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import pytest  # noqa: E402
from conftest import GIB, MIB, ROOT, TESTS, on_vgpu, run, tensorflow, under_weir, weir  # noqa: E402

PROFILES = ["a100", "h100", "v100", "t4", "rtx4090", "gtx1080", "wsl2", "vgpu-guest", "mig-1g.10gb", "container", "no-p2p", "jetson"]
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


def capped(profile, folder):
    cap = 1 * GIB
    # Page tables are charged to nobody (docs/limits.md).
    run("python3", TESTS / "machines/pool.py", "capped", cap, quiet=True,
        env=under_weir(folder, VGPU_PROFILE=profile, VGPU_PAGE_TABLES=0, WEIR_CAP=cap, WEIR_RING="16K", WEIR_OOM_TEXT="off"))
    return []


def resnet50(profile, folder):
    python, variables = tensorflow()
    env = under_weir(folder, **variables, VGPU_PROFILE=profile, WEIR_CAP=6 * GIB, TF_CPP_MIN_LOG_LEVEL="3", WEIR_OOM_TEXT="off")
    env["LD_LIBRARY_PATH"] = variables.get("LD_LIBRARY_PATH", env["LD_LIBRARY_PATH"])
    job = [python, TESTS / "tensorflow/bench_job.py", "resnet50"]
    bare = {name: value for name, value in env.items() if name not in ("LD_PRELOAD", "WEIR_CAP")}
    done = run(*job, env=env, code=None, timeout=900, quiet=True)
    if done.returncode:
        # On drivers before CUDA 12 TensorFlow finds no GPU.
        alone = run(*job, env=bare, code=None, timeout=900, quiet=True)
        # An abort prints its stack: addresses differ from run to run.
        words, other = (re.sub("0x[0-9a-f]+", "", one.stderr.strip().rsplit("\n", 1)[-1]) for one in (done, alone))
        return [] if (alone.returncode, other) == (done.returncode, words) else [f"exit code {done.returncode}: {words}"]
    out = done.stdout
    peak = json.loads(out.splitlines()[-1])["physical_peak"]
    return [] if 0 < peak <= 6 * GIB else [f"{peak // MIB} MiB under a cap of 6 GiB"]


def row(profile):
    peers = ["peers"] if profile == "no-p2p" else []
    work = {
        "bare": lambda folder: checked(profile, folder, "conformance"),
        "under weir": lambda folder: checked(profile, folder, "conformance", "conformance-weir"),
        "pool": lambda folder: checked(profile, folder, "pool"),
        "cap": lambda folder: capped(profile, folder),
        "resnet50": lambda folder: resnet50(profile, folder),
        "gpu-check": lambda folder: checked(profile, folder, "doctor", "probe", "latency", *peers),
    }
    cells = {}
    for column in COLUMNS:
        with tempfile.TemporaryDirectory(prefix="weir-table-") as folder:
            try:
                wrong = work[column](folder)
            except pytest.fail.Exception as failed:
                wrong = [str(failed).splitlines()[0], *str(failed).strip().splitlines()[-1:]]
        cells[column] = "ok" if not wrong else "; ".join(wrong)
        print(f"{profile}: {column}: {cells[column]}", flush=True)
    return cells


def main(profiles):
    if profiles[:1] == ["--without"]:
        COLUMNS.remove(profiles[1])
        profiles = profiles[2:]
    table = {profile: row(profile) for profile in profiles or PROFILES}
    lines = ["\t".join(["profile", *COLUMNS])]
    lines += ["\t".join([profile, *(cells[column].replace("\t", " ") for column in COLUMNS)]) for profile, cells in table.items()]
    (ROOT / "target/machines.tsv").write_text("\n".join(lines) + "\n")
    short = {profile: [cell if cell == "ok" else "no" for cell in cells.values()] for profile, cells in table.items()}
    print("| profile | " + " | ".join(COLUMNS) + " |\n|---" + "|---" * len(COLUMNS) + "|")
    for profile, cells in short.items():
        print(f"| `{profile}` | " + " | ".join(cells) + " |")
    cells = [cell for row_ in table.values() for cell in row_.values()]
    good = cells.count("ok")
    print(f"{good} passed, {len(cells) - good} failed")
    return good < len(cells)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
