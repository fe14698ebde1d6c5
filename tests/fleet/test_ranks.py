"""One report over the ranks of a job: real workers of TensorFlow on loopback, and made-up processes with the variables of
launchers."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest
from conftest import MIB, STAGE, TESTS, on_vgpu, run, tensorflow, under_weir, weir

# Of a default run.
brief = pytest.mark.brief
HERE = TESTS / "fleet"
JOB = HERE / "job.py"


def rank(folder, number, *arguments, ranks=2, code=None, **variables):
    """A process that says by its variables which rank of job 7 it is."""
    known = {"SLURM_JOB_ID": 7, "SLURM_STEP_ID": 0, "SLURM_PROCID": number, "SLURM_NTASKS": ranks, "SLURMD_NODENAME": f"n{number}", "WEIR_RING": "4K,1K", "VGPU_MEM": "2GiB"}
    return run(sys.executable, JOB, *arguments, env=under_weir(folder, **{**known, **variables}), code=code)


def report(*arguments, **how):
    return json.loads(weir("report", "--json", *arguments, **how).stdout)


@brief
def test_the_rank_that_ran_out_is_named_and_what_it_holds_more(weir_dir):
    rank(weir_dir, 0, "--until", "64", code=0)
    rank(weir_dir, 1, "--fail", WEIR_CAP="512MiB", code=1)
    rank(weir_dir, 0, "--until", "64", SLURM_JOB_ID=8, code=0)
    found = report("--job", "7", "--dir", weir_dir, "--check", code=3)
    assert [one["name"] for one in found["ranks"]] == ["rank 0", "rank 1"] and found["first"] == 1
    assert [one["member"]["host"] for one in found["ranks"]] == ["n0", "n1"]
    assert found["report"]["findings"][0]["cause"] == "cap"
    first, second = found["ranks"]
    assert first["live"] == 64 * MIB or first["course"] == "ended well"
    assert second["cap"] == 512 * MIB and second["live"] >= 384 * MIB
    assert found["balance"]["most"] == 1 and found["balance"]["rows"][0]["excess"] >= 256 * MIB
    text = weir("report", "--job", "7", "--dir", weir_dir).stdout
    assert "First     rank 1 ran out at" in text and "CAP" in text and "Imbalance rank 1" in text
    weir("report", "--job", "8", "--dir", weir_dir, "--check", code=0)
    missing = weir("report", "--job", "9", "--dir", weir_dir, code=1)
    assert "no run of a job or group 9" in missing.stderr


@brief
def test_a_rank_that_began_after_the_failure_held_nothing_then(weir_dir):
    rank(weir_dir, 1, "--fail", WEIR_CAP="256MiB", code=1)
    rank(weir_dir, 0, "--until", "64", code=0)
    found = report("--job", "7", "--dir", weir_dir, "--check", code=3)
    assert found["first"] == 1 and [one["live"] > 0 for one in found["ranks"]] == [False, True]
    assert found["ranks"][0]["peak"] >= 64 * MIB and found["ranks"][0]["course"] == "ended well"


@brief
def test_a_rank_without_a_journal_is_named(weir_dir):
    rank(weir_dir, 1, "--until", "64", ranks=3, code=0)
    found = report("--job", "7", "--dir", weir_dir)
    assert found["missing"] == [0, 2] and found["first"] is None
    assert "No journal of rank 0, 2" in weir("report", "--job", "7", "--dir", weir_dir).stdout


@brief
def test_a_requeued_job_is_its_last_turn(weir_dir):
    rank(weir_dir, 0, "--fail", WEIR_CAP="256MiB", ranks=1, code=1)
    rank(weir_dir, 0, "--until", "64", SLURM_RESTART_COUNT=1, ranks=1, code=0)
    found = report("--job", "7", "--dir", weir_dir, "--check", code=0)
    assert len(found["ranks"]) == 1 and found["ranks"][0]["oom"] == 0


@brief
def test_journals_of_machines_are_gathered_and_never_meet(weir_dir, tmp_path):
    other, folder = tmp_path / "other", tmp_path / "gathered"
    rank(weir_dir, 0, "--until", "64", code=0)
    rank(weir_dir, 0, "--until", "64", SLURM_JOB_ID=8, code=0)
    other.mkdir(mode=0o700)
    rank(other, 1, "--fail", WEIR_CAP="256MiB", code=1)
    # Two machines whose journals have one name.
    (ours,) = [path for path in weir_dir.glob("*.weir") if b"SLURM_JOB_ID=7" in path.read_bytes()]
    (theirs,) = other.glob("*.weir")
    theirs.rename(other / ours.name)
    for place in (weir_dir, other):
        weir("gather", folder, "--dir", place, "--name", "node", "--job", "7")
    assert len(list(folder.iterdir())) == 2, "two runs, two files"
    again = weir("gather", folder, "--dir", other, "--name", "node").stdout
    assert len(list(folder.iterdir())) == 2 and pathlib.Path(again.strip()).exists(), "a run replaces its own copy only"
    found = report("--job", folder, "--check", code=3)
    assert [one["member"]["rank"] for one in found["ranks"]] == [0, 1] and found["first"] == 1
    refused = weir("gather", folder, "--dir", weir_dir, "--name", "../x", code=1)
    assert "--name" in refused.stderr
    shutil.copy(folder / sorted(os.listdir(folder))[0], folder / "broken.weir")
    (folder / "broken.weir").write_bytes(b"no journal")
    assert len(report("--job", folder)["ranks"]) == 2, "a damaged file loses no other"


@pytest.mark.tensorflow
@pytest.mark.parametrize("uneven", [None, 1])
def test_workers_of_tensorflow(weir_dir, uneven):
    python, variables = tensorflow()
    ports = []
    for _ in range(2):
        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            ports.append(place.getsockname()[1])
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    workers = []
    for index in range(2):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        env = on_vgpu(TF_CONFIG=config, TF_CPP_MIN_LOG_LEVEL="2", LD_PRELOAD=STAGE / "lib/libweir.so", WEIR_DIR=weir_dir, WEIR_GROUP=f"w{index}",
                      WEIR_CAP="512MiB", WEIR_RING="64K,16K", VGPU_MEM="2GiB", STEPS=8 if uneven is None else 60, UNEVEN=uneven, **variables)
        log = open(weir_dir / f"{index}.log", "w")
        workers.append(subprocess.Popen([python, HERE / "workers.py"], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    try:
        if uneven is None:
            assert [worker.wait(400) for worker in workers] == [0, 0], [(weir_dir / f"{index}.log").read_text()[-3000:] for index in range(2)]
        else:
            assert workers[1].wait(400) != 0
            # The other one waits for it, or notices.
            end = time.monotonic() + 20
            while workers[0].poll() is None and time.monotonic() < end:
                time.sleep(0.1)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    found = report("--job", weir_dir)
    ranks = found["ranks"]
    assert [one["name"] for one in ranks] == ["worker 0", "worker 1"] and found["missing"] == []
    if uneven is None:
        assert found["first"] is None and [one["course"] for one in ranks] == ["ended well"] * 2
        return
    assert found["first"] == 1 and ranks[1]["live"] > 400 * MIB > 4 * ranks[0]["live"], found["balance"]
    assert found["balance"]["most"] == 1 and "workers.py:31" in found["balance"]["rows"][0]["python"]
    assert ranks[0]["failed_ns"] is None and "nothing of it was refused" in ranks[0]["course"], ranks[0]["course"]
    print(weir("report", "--job", weir_dir).stdout)
