"""weir for aarch64, on an emulated processor (QEMU's user mode) with that processor's C library: the conformance suite bare and
under the library, random programs for the pool, journals of jobs that end, run out of memory and are killed, and that the command
reads them on both processors. As root: programs that start themselves again need an entry of binfmt_misc."""
import json
import os
import pathlib
import signal
import subprocess

import pytest
from conftest import MIB, ROOT, WEIR, environment, run

pytestmark = pytest.mark.long

HERE = pathlib.Path(__file__).parent
STAGE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "aarch64-unknown-linux-gnu/weir"
LIBRARY = STAGE / "lib/libweir.so"
BINFMT, ENTRY = pathlib.Path("/proc/sys/fs/binfmt_misc"), "weir-aarch64"
# The first 20 bytes of an executable or library: little-endian, 64 bits, of processor 0xb7.
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


@pytest.fixture(scope="session", autouse=True)
def emulator():
    """Programs of that processor run like any others."""
    qemu = run(HERE / "run", "--emulator", env=dict(os.environ), timeout=600).stdout.strip()
    if os.geteuid() != 0:
        pytest.fail("needs root: programs of another processor are made known to the kernel")
    if not (BINFMT / "register").exists():
        run("mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT)
    if (BINFMT / ENTRY).exists():
        (BINFMT / ENTRY).write_text("-1")
    # F: the emulator is opened now, whatever root a program sees.
    (BINFMT / "register").write_text(f":{ENTRY}:M::{MAGIC}:{MASK}:{qemu}:F")
    yield
    (BINFMT / ENTRY).write_text("-1")


def emulated(**more):
    """The environment of a job on the virtual GPU of that processor."""
    return environment(**{"QEMU_LD_PREFIX": "/usr/aarch64-linux-gnu", "LD_LIBRARY_PATH": STAGE / "vgpu", "VGPU_MEM": "2GiB",
                          "VGPU_STRICT": "on", **more})


def preloaded(folder, **more):
    return emulated(**{"LD_PRELOAD": LIBRARY, "WEIR_DIR": folder, "WEIR_RING": "64K", **more})


@pytest.fixture(scope="session")
def job(tmp_path_factory):
    """A job in C: takes 16 MiB at a time until there is no more, prints how much there was, and waits if it is to be killed."""
    program = tmp_path_factory.mktemp("job") / "job"
    run("aarch64-linux-gnu-gcc", "-O1", "-o", program, HERE / "job.c", "-ldl")
    return program


def test_the_programs_are_of_that_processor():
    for path in (LIBRARY, STAGE / "bin/weir", STAGE / "vgpu/libcuda.so.1", STAGE / "check/conformance"):
        assert path.read_bytes()[18] == 0xb7, path


def rules(env, tmp_path, *arguments):
    """Verdicts of the conformance suite by rule."""
    out = tmp_path / "rules.json"
    done = run(STAGE / "check/conformance", "--json", out, *arguments, env=env, timeout=5400, code=None)
    verdicts = {line["rule"]: line for line in map(json.loads, out.read_text().splitlines())}
    assert verdicts, done.stderr
    return verdicts


def failed(verdicts):
    return {name: line for name, line in verdicts.items() if line["result"] == "fail"}


def listed():
    """How many rules there are, by the suite itself."""
    return int(run(STAGE / "check/conformance", "--list", env=emulated()).stdout.splitlines()[-1].split()[0])


def test_the_virtual_gpu_keeps_the_rules(tmp_path):
    verdicts = rules(emulated(), tmp_path)
    assert failed(verdicts) == {} and len(verdicts) == listed()


def recorded(folder):
    """Whether weir was there at all: without it, programs run as well."""
    return list(folder.rglob("*.weir")) != []


def test_the_rules_hold_under_the_library(tmp_path):
    # As a pass-through: what the pool changes by design is tested elsewhere.
    verdicts = rules(preloaded(tmp_path / "journals", WEIR_POOL="off", WEIR_RING="64,512", WEIR_OOM_TEXT="off"), tmp_path)
    assert failed(verdicts) == {} and len(verdicts) == listed()
    assert recorded(tmp_path / "journals")


@pytest.mark.parametrize("arguments", ["20000 --seed 1", "20000 --seed 2 --threads 3", "10000 --plain --seed 3"])
def test_random_programs_find_their_memory_unchanged(arguments, tmp_path):
    run(STAGE / "check/pool-soak", *arguments.split(), env=preloaded(tmp_path, WEIR_CAP="192MiB"), timeout=3600)
    assert recorded(tmp_path)


def report(folder, command, env):
    return json.loads(run(command, "report", "--json", "--dir", folder, env=env).stdout)


def test_a_capped_job_runs_out_and_is_explained_on_both_processors(job, tmp_path):
    done = run(STAGE / "bin/weir", "run", "--quiet", "--vgpu", "1GiB", "--cap", "256MiB", "--", job,
               env=emulated(WEIR_DIR=tmp_path, WEIR_RING="64K"))
    taken = int(done.stdout.split()[-1])
    assert 208 <= taken <= 256
    there, here = report(tmp_path, STAGE / "bin/weir", emulated()), report(tmp_path, WEIR, environment())
    assert there["peak"] == here["peak"] and taken * MIB <= here["peak"] <= 256 * MIB
    assert there["findings"] == here["findings"] and "CAP" in json.dumps(here["findings"]).upper()


def test_the_journal_of_a_killed_job_holds_what_it_held(job, tmp_path):
    process = subprocess.Popen([job, "wait"], env=preloaded(tmp_path, WEIR_CAP="128MiB"), stdout=subprocess.PIPE, text=True)
    taken = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = report(tmp_path, WEIR, environment())
    assert dict(found["driver"]["parts"])["live"] == taken * MIB


def test_doctor_finds_every_function(tmp_path):
    done = run(STAGE / "bin/weir", "run", "--vgpu", "1GiB", "--", STAGE / "bin/weir", "doctor", env=emulated(WEIR_DIR=tmp_path))
    assert "No problem found" in done.stdout
