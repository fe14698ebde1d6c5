"""Slurm's own daemons, three nodes, the plugin, and jobs on the virtual GPU: what a job may take is read from the job
itself, which the virtual GPU serves, and from Slurm."""
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pyarrow.parquet
import pytest

from conftest import MIB, ROOT, STAGE, run, tensorflow, until
from slurm import NODES, NUMBER, USER, Cluster, lines

pytestmark = pytest.mark.root
# Of a default run.
brief = pytest.mark.brief
JOB = ("python3", "/mnt/jobs/job.py")
RUN = "python3 /mnt/jobs/job.py"


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.end()


def one(done):
    (job,) = lines(done.stdout)
    return job


def was_capped(job, mib):
    """The job saw a device of its limit, took what fits, and was refused in the end."""
    return job["total"] == mib and mib - 128 <= job["taken"] <= mib and job["code"] == 2


@brief
def test_a_job_gets_what_it_asks_for_and_no_more(cluster):
    assert was_capped(one(cluster.srun("--gpu-mem=768M", *JOB)), 768)


def test_the_default_is_that_of_the_partition(cluster):
    assert was_capped(one(cluster.srun(*JOB)), 1024)
    assert was_capped(one(cluster.srun("-p", "small", *JOB)), 512)
    free = one(cluster.srun("-p", "open", "--gpu-mem=100%", *JOB))
    assert free["total"] == 4096 and free["taken"] > 3500, "without the limit the device has more"


@brief
def test_a_job_that_asks_for_too_much_is_refused(cluster):
    done = cluster.srun("-p", "small", "--gpu-mem=1G", *JOB)
    assert done.returncode != 0 and not lines(done.stdout)
    assert "1.00 GiB of GPU memory is more than the maximum of partition small, 512.0 MiB" in done.stderr
    job = cluster.sbatch(RUN, "-p", "small", "--gpu-mem=1G")
    assert cluster.ended(job)["JobState"] in ("FAILED", "NODE_FAIL")
    assert not lines(cluster.out(job)) and "more than the maximum" in cluster.out(job)
    assert cluster.command("sinfo", "-h", "-N", "-p", "main", "-o", "%T").stdout.split() == ["idle"] * 3, "no node is drained by it"


def test_a_size_that_is_none_is_refused_before_anything_is_submitted(cluster):
    for size in ("8", "many", "0"):
        for command in (("srun", "hostname"), ("sbatch", "--wrap=hostname")):
            done = cluster.command(command[0], "-D", "/mnt/jobs", f"--gpu-mem={size}", command[1], user="ada")
            assert done.returncode != 0 and f"--gpu-mem=\"{size}\"" in done.stderr, done.stderr
    assert cluster.command("squeue", "-h").stdout == ""


def test_shards_are_a_share_of_the_gpu(cluster):
    for shards in ("shard:1", "shard:a100:1"):
        job = one(cluster.srun(f"--gres={shards}", "-p", "open", *JOB))
        assert was_capped(job, 1024), "one of four shards of 4 GiB"
    refused = cluster.srun("--gres=shard:1", "--gpu-mem=1.5G", *JOB)
    assert refused.returncode != 0 and "the job's shards, 25%" in refused.stderr


def test_shards_of_several_gpus_are_never_given_and_those_of_one_are_its_whole_limit(cluster):
    """What Slurm 22.05 answers: the shards of a job on a node are of one GPU. More than one GPU has are accepted, and never come."""
    for shards in ("shard:4", "shard:a100:4"):
        job = one(cluster.srun(f"--gres={shards}", "-p", "open", *JOB))
        assert (job["total"], job["cap"]) == (4096, "100%")
    for shards in ("shard:6", "shard:a100:8"):
        waits = cluster.sbatch(RUN, f"--gres={shards}", "-p", "open")
        idle = lambda: cluster.command("sinfo", "-h", "-N", "-p", "open", "-o", "%T", quiet=True).stdout.split() == ["idle"] * 3
        until(lambda: cluster.show(waits)["Reason"] == "Resources" and idle(), lambda: cluster.explain(waits))
        cluster.command("scancel", waits)
        assert cluster.ended(waits)["JobState"] == "CANCELLED" and not lines(cluster.out(waits))
    both = cluster.srun("-N2", "--ntasks-per-node=1", "--gres=shard:2", "-p", "open", *JOB)
    assert [job["cap"] for job in lines(both.stdout)] == ["50%"] * 2, "on two nodes it is the share of each one's GPU"


def test_the_limit_is_that_of_each_gpu(cluster):
    for device in (0, 1):
        assert was_capped(one(cluster.srun("--gres=gpu:a100:2", "--gpu-mem=512M", *JOB, "--device", device)), 512)


def test_a_users_own_variable_lowers_and_never_raises_the_limit(cluster):
    assert was_capped(one(cluster.srun("--gpu-mem=1G", *JOB, WEIR_CAP="512MiB")), 512)
    assert was_capped(one(cluster.srun("--gpu-mem=1G", *JOB, WEIR_CAP="3GiB")), 1024)
    assert was_capped(one(cluster.srun("--gpu-mem=1G", *JOB, WEIR_CAP="0=512MiB")), 512)
    bad = cluster.srun("--gpu-mem=1G", *JOB, WEIR_CAP="3")
    assert bad.returncode != 0 and "WEIR_CAP" in bad.stderr and not lines(bad.stdout)


def test_tasks_of_a_job_share_the_limit_on_each_node(cluster):
    flag = cluster.jobs / "all"
    flag.unlink(missing_ok=True)
    job = cluster.sbatch(f"srun {RUN} --hold /mnt/jobs/all", "--gpu-mem=1G", "-N2", "--ntasks-per-node=2")
    until(lambda: len(lines(cluster.out(job))) == 4, lambda: cluster.out(job) + cluster.logs())
    flag.touch()
    assert cluster.ended(job)["JobState"] == "COMPLETED"
    tasks = lines(cluster.out(job))
    for node in sorted({task["host"] for task in tasks}):
        taken = sum(task["taken"] for task in tasks if task["host"] == node)
        assert 1024 - 192 <= taken <= 1024, (node, tasks)
    assert len({task["host"] for task in tasks}) == 2 and len({task["group"] for task in tasks}) == 2


def test_each_task_has_its_own_limit_if_that_is_wanted(cluster):
    done = cluster.srun("--gpu-mem-per-task=512M", "-N1", "-n2", *JOB)
    tasks = lines(done.stdout)
    assert len(tasks) == 2 and all(was_capped(task, 512) for task in tasks), tasks
    refused = cluster.srun("--gpu-mem-per-task=1G", "-N1", "-n3", *JOB)
    assert refused.returncode != 0 and "3.00 GiB of GPU memory is more than" in refused.stderr


def test_a_step_cannot_ask_for_more_than_its_job(cluster):
    job = cluster.sbatch(f"srun --gpu-mem=1G {RUN}; env -u WEIR_CAP srun {RUN}", "--gpu-mem=512M")
    cluster.ended(job)
    text = cluster.out(job)
    assert "more than the job's --gpu-mem, 512.0 MiB" in text
    assert [was_capped(task, 512) for task in lines(text)] == [True], "and without the variable it has the job's"


@brief
def test_a_job_that_escapes_is_found(cluster):
    job = cluster.sbatch(f"env -u LD_PRELOAD {RUN}", "--gpu-mem=512M")
    comment = cluster.comment(job)
    assert lines(cluster.out(job))[0]["total"] == 4096, "it did escape"
    assert "no process used CUDA under weir, so the limit of 512.0 MiB was not in force" in comment
    assert cluster.show(job)["JobState"] == "COMPLETED", "it is marked, no more"
    kept = cluster.jobs / f"weir-{job}-n1.txt"
    assert "was not in force" in kept.read_text() and kept.stat().st_uid == NUMBER and str(kept.name) in comment

    good = cluster.sbatch(RUN + " --until 64", "--gpu-mem=512M")
    assert "AdminComment" not in cluster.ended(good), "a good job is not marked"


def test_a_job_that_raises_its_limit_or_leaves_its_group_is_found(cluster):
    job = cluster.sbatch(f"WEIR_CAP=3GiB {RUN} --until 64", "--gpu-mem=512M")
    assert "had a cap of 3.00 GiB, above the limit of 512.0 MiB" in cluster.comment(job)
    job = cluster.sbatch(f"WEIR_GROUP=mine {RUN} --until 64", "--gpu-mem=512M")
    assert "left the group" in cluster.comment(job)


def test_a_job_that_escapes_is_cancelled_if_the_administrator_says_so(cluster):
    cluster.conf("escaped=cancel")
    try:
        job = cluster.sbatch(f"env -u LD_PRELOAD {RUN}; srun env -u LD_PRELOAD {RUN} --until 64", "--gpu-mem=512M")
        assert cluster.ended(job)["JobState"] == "CANCELLED"
        assert len(lines(cluster.out(job))) == 2, "a step is not the job"
        good = cluster.sbatch(f"srun env -u LD_PRELOAD hostname; {RUN} --until 64", "--gpu-mem=512M")
        assert cluster.ended(good)["JobState"] == "COMPLETED"
    finally:
        cluster.conf()


def test_a_killed_step_leaves_its_share_to_the_next(cluster):
    script = f"""srun {RUN} --hold /mnt/jobs/never &
        until grep -q taken /mnt/jobs/$SLURM_JOB_ID.out; do sleep 0.1; done
        scancel --signal=KILL $SLURM_JOB_ID.0; wait
        srun {RUN}"""
    job = cluster.sbatch(script, "--gpu-mem=768M")
    cluster.ended(job)
    tasks = lines(cluster.out(job))
    assert [was_capped(task, 768) for task in tasks] == [True, True], tasks


def test_a_job_that_is_requeued_begins_anew(cluster):
    flag = cluster.jobs / "go"
    flag.unlink(missing_ok=True)
    job = cluster.sbatch(f"echo run $SLURM_RESTART_COUNT; {RUN} --hold /mnt/jobs/go", "--gpu-mem=512M", "--requeue", "-w", "n2", "--open-mode=append")
    until(lambda: lines(cluster.out(job)), lambda: cluster.out(job) + cluster.logs())
    assert cluster.command("scontrol", "requeue", job).returncode == 0
    flag.touch()
    # Slurm holds a requeued job back for a while.
    until(lambda: len(lines(cluster.out(job))) == 2, lambda: cluster.out(job) + cluster.logs(), 180)
    assert cluster.ended(job)["JobState"] == "COMPLETED"
    assert [was_capped(task, 512) for task in lines(cluster.out(job))] == [True, True]


def test_a_preempted_job_leaves_the_node_to_the_next(cluster):
    flag = cluster.jobs / "preempted"
    flag.unlink(missing_ok=True)
    low = cluster.sbatch(f"{RUN} --hold /mnt/jobs/preempted", "--gpu-mem=1G", "--requeue", "-w", "n3", "-c4", "--open-mode=append")
    until(lambda: lines(cluster.out(low)), lambda: cluster.out(low) + cluster.logs())
    high = one(cluster.srun("-p", "urgent", "-w", "n3", "-c4", "--gpu-mem=2G", *JOB, timeout=120))
    assert was_capped(high, 2048)
    assert cluster.show(low)["Restarts"] == "1"
    cluster.command("scancel", low)
    cluster.ended(low)


def test_a_node_that_dies_takes_no_share_with_it():
    # A cluster of its own: the node does not come back.
    cluster = Cluster()
    try:
        flag = cluster.jobs / "died"
        job = cluster.sbatch(f"{RUN} --hold /mnt/jobs/died", "--gpu-mem=512M", "--requeue", "--open-mode=append")
        until(lambda: lines(cluster.out(job)), lambda: cluster.out(job) + cluster.logs())
        (first,) = lines(cluster.out(job))
        killed = cluster.kill(first["host"])
        assert killed >= 4, "munged, slurmd, the step's keeper and the job"
        flag.touch()
        until(lambda: len(lines(cluster.out(job))) == 2, lambda: cluster.out(job) + cluster.logs(), 300)
        assert cluster.ended(job, without=first["host"])["JobState"] == "COMPLETED"
        again = lines(cluster.out(job))[1]
        assert again["host"] != first["host"] and was_capped(first, 512) and was_capped(again, 512)
        # The report is of the turn that came to its end.
        done = cluster.command("/mnt/weir/bin/weir", "report", "--job", job, "--json", "--no-replay", user="ada")
        (rank,) = json.loads(done.stdout)["ranks"]
        assert rank["member"]["host"] == again["host"] and rank["member"]["restarts"] == 1
    finally:
        cluster.end()


def test_a_job_over_two_nodes_leaves_one_report(cluster):
    each = f"bash -c '{RUN} $([ $SLURM_PROCID = 1 ] && echo --fail || echo --until 64)'"
    job = cluster.sbatch(f"srun {each}", "--gpu-mem=512M", "-N2", "--ntasks-per-node=1")
    shown = cluster.ended(job)
    place = cluster.jobs / f"weir-{job}-n1.txt"
    assert f"weir on n1: out of GPU memory, see /mnt/jobs/{place.name}" in shown.get("AdminComment", ""), cluster.explain(job)
    text = place.read_text()
    assert f"GPU OUT OF MEMORY ━━ job {job}" in text and "2 processes on n1, n2" in text, text
    assert "First     rank 1 ran out at" in text and "on n2" in text and "512.0 MiB" in text, text
    assert place.stat().st_uid == NUMBER


def test_each_run_of_a_job_is_a_row_of_the_lake(cluster):
    cluster.conf("lake=/mnt/lake")
    try:
        # Rank 1 runs out on n2; both nodes see the journals of both. What a user says of a run is not believed.
        each = f"bash -c 'export SLURM_JOB_USER=root; {RUN} $([ $SLURM_PROCID = 1 ] && echo --fail || echo --until 64)'"
        job = cluster.sbatch(f"srun {each}", "-J", "nightly", "--gpu-mem=512M", "-N2", "--ntasks-per-node=1")
        cluster.ended(job)
        good = cluster.sbatch(f"{RUN} --until 64", "-J", "alone", "-p", "small")
        cluster.ended(good)
        rows = {(row["job"], row["host"]): row for row in pyarrow.parquet.read_table(cluster.lake / "runs").to_pylist()}
        assert sorted(rows) == sorted([(str(job), "n1"), (str(job), "n2"), (str(good), "n1")]), (rows, cluster.logs())
        failed, other, alone = rows[str(job), "n2"], rows[str(job), "n1"], rows[str(good), "n1"]
        assert {row["user"] for row in rows.values()} == {USER}
        assert (failed["outcome"], failed["cause"], failed["cap"], failed["task"], failed["tasks"]) == ("oom", "cap", 512 * MIB, 1, 2), failed
        assert (failed["name"], failed["partition"], failed["line"].split(":")[0]) == ("nightly", "main", "job.py"), failed
        assert (other["outcome"], other["ooms"], other["cause"]) == ("ok", 0, None)
        assert (alone["name"], alone["partition"], alone["cap"], alone["peak"] >= 64 * MIB) == ("alone", "small", 512 * MIB, True)
        assert all(path.stat().st_uid == 0 for path in cluster.lake.rglob("*"))
    finally:
        cluster.conf("escaped=mark")


def test_a_lake_that_is_out_of_reach_is_named_and_holds_up_no_job(cluster):
    cluster.conf("lake=/proc/lake")
    try:
        job = cluster.sbatch(f"{RUN} --until 64")
        assert cluster.ended(job)["JobState"] == "COMPLETED"
        assert f"weir: job {job}: its runs are not in the lake: weir ship: " in cluster.log("n1.log"), cluster.log("n1.log")[-2000:]
    finally:
        cluster.conf("escaped=mark")


@pytest.mark.tensorflow
def test_workers_of_tensorflow_on_three_nodes_leave_one_report():
    """MultiWorkerMirroredStrategy: rank 1 keeps more each step until its limit is reached; the others wait for it and are ended by Slurm."""
    python, variables = tensorflow()
    # The interpreter, and the one that its environment was made from.
    home = next(line.split("=")[1].strip() for line in pathlib.Path(python).parent.parent.joinpath("pyvenv.cfg").open() if line.startswith("home"))
    places = [pathlib.Path(python).parent.parent, pathlib.Path(home).parent]
    cluster = Cluster(shown=[place for place in places if place.is_relative_to(pathlib.Path.home())])
    try:
        cluster.conf("lake=/mnt/lake")
        flags = variables["XLA_FLAGS"].replace(str(STAGE), "/mnt/weir")
        more = f"XLA_FLAGS='{flags}' TF_CPP_MIN_LOG_LEVEL=2 WEIR_RING=64K,16K STEPS=60 UNEVEN=1"
        script = f"export {more}\nsrun --kill-on-bad-exit=1 {python} /mnt/jobs/workers.py"
        job = cluster.sbatch(script, "--gpu-mem=512M", "-N3", "--ntasks-per-node=1", "--gres=gpu:a100:1")
        shown = cluster.ended(job, seconds=600)
        assert shown["JobState"] == "FAILED", cluster.explain(job)
        report = lambda *words: cluster.command("/mnt/weir/bin/weir", "report", "--job", job, "--no-replay", *words, user="ada")
        found = json.loads(report("--json").stdout)
        ranks = found["ranks"]
        assert [one["member"]["host"] for one in ranks] == list(NODES) and found["missing"] == [], ranks
        assert found["first"] == 1 and ranks[1]["live"] > 400 * MIB > 4 * max(ranks[0]["live"], ranks[2]["live"]), found["balance"]
        assert found["balance"]["most"] == 1 and "workers.py:31" in found["balance"]["rows"][0]["python"], found["balance"]
        assert all(one["failed_ns"] is None and "nothing of it was refused" in one["course"] for one in (ranks[0], ranks[2])), ranks
        # Slurm's own answer has the node and the file, the file the same report.
        comment = shown.get("AdminComment", "")
        assert "out of GPU memory" in comment, comment
        page = (cluster.jobs / f"weir-{job}-n1.txt").read_text()
        assert "First     rank 1 ran out at" in page and "3 processes on n1, n2, n3" in page, page
        print(report().stdout)
        rows = {row["host"]: row for row in pyarrow.parquet.read_table(cluster.lake / "runs").to_pylist()}
        assert sorted(rows) == list(NODES) and {row["framework"] for row in rows.values()} == {"tensorflow 2.21.0"}, rows
        assert rows["n2"]["outcome"] == "oom" and rows["n2"]["line"] and rows["n1"]["cause"] is None, rows
    finally:
        cluster.end()


def test_the_plugin_goes_by_the_public_header(tmp_path):
    header = pathlib.Path("/usr/include/slurm/spank.h")
    if not header.exists():
        run("apt-get", "install", "-y", "-qq", "libslurm-dev", env=dict(os.environ))
    items = {"User": "S_JOB_UID", "Group": "S_JOB_GID", "Job": "S_JOB_ID", "Step": "S_JOB_STEPID", "LocalTasks": "S_JOB_LOCAL_TASK_COUNT",
             "Task": "S_TASK_ID", "GlobalTask": "S_TASK_GLOBAL_ID", "Status": "S_TASK_EXIT_STATUS"}
    contexts = {"Local": "S_CTX_LOCAL", "Remote": "S_CTX_REMOTE", "Allocator": "S_CTX_ALLOCATOR", "JobScript": "S_CTX_JOB_SCRIPT"}
    names = [*items.values(), *contexts.values(), "SLURM_BATCH_SCRIPT", "SLURM_VERSION_NUMBER", "sizeof(struct spank_option)"]
    program = tmp_path / "header.c"
    program.write_text("#include <stdio.h>\n#include <stdint.h>\n#include <slurm/slurm.h>\n#include <slurm/spank.h>\nint main(void) {\n"
                       + "".join(f'    printf("%lld\\n", (long long)({name}));\n' for name in names) + "}\n")
    run("cc", "-o", tmp_path / "header", program)
    *known, batch, version, size = map(int, run(tmp_path / "header").stdout.split())
    source = (ROOT / "src/slurm/src/spank.rs").read_text()
    ours = [int(re.search(rf"^    {name} = (\d+),", source, re.M)[1]) for name in items]
    ours += [int(re.search(rf"^        (\d+) => Context::{name},", source, re.M)[1]) for name in contexts]
    assert ours == known
    assert batch == 0xFFFFFFFB and size == 40
    plugin = ctypes.CDLL(str(STAGE / "lib/weir_slurm.so"))
    assert ctypes.c_uint32.in_dll(plugin, "plugin_version").value == version


def test_nothing_is_left_of_ended_jobs(cluster):
    for node in NODES:
        left = cluster.command("sh", "-c", "ls -A /run/weir-slurm; ls /dev/shm/weir-*/", place=node).stdout.split()
        assert [name for name in left if name.startswith("group-slurm") or name.isdigit()] == [], (node, left)


def test_a_cluster_ends_with_its_test_however_that_ends(tmp_path):
    code = ("import sys, time; sys.path[:0] = %r\nfrom slurm import Cluster\ncluster = Cluster()\n"
            "print(cluster.init, cluster.folder, flush=True)\ntime.sleep(600)" % [path for path in sys.path if path])
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    init, folder = child.stdout.readline().split()
    namespace = os.readlink(f"/proc/{init}/ns/pid")

    def living():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                found += [pid] if os.readlink(f"/proc/{pid}/ns/pid") == namespace else []
            except OSError:
                pass
        return found

    assert len(living()) >= 8, "four munged, three slurmd, slurmctld"
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: not living(), lambda: f"the end of {living()}")
    assert subprocess.run(["rm", "-r", folder]).returncode == 0
