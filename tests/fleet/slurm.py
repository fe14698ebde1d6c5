"""A Slurm cluster for the tests: tests/fleet/cluster in namespaces of its own, its configuration, and commands in it."""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import PATIENCE, ROOT, STAGE, environment, need, until

HERE = pathlib.Path(__file__).parent
NODES = ("n1", "n2", "n3")
# A user who exists in the cluster only.
USER, NUMBER = "ada", 61815

SLURM = """ClusterName=fleet
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,shard
PrologFlags=Alloc
ReturnToService=2
SlurmdTimeout=10
KillWait=5
SchedulerParameters=sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
NodeName=n[1-3] CPUs=4 RealMemory=4000 Gres=gpu:a100:2,shard:a100:8 State=UNKNOWN
PartitionName=main Nodes=n[1-3] Default=YES PriorityTier=1
PartitionName=small Nodes=n[1-3] PriorityTier=1
PartitionName=open Nodes=n[1-3] PriorityTier=1
PartitionName=urgent Nodes=n[1-3] PriorityTier=9
"""
GRES = """Name=gpu Type=a100 File=/run/gpu0
Name=gpu Type=a100 File=/run/gpu1
Name=shard Count=4 File=/run/gpu0
Name=shard Count=4 File=/run/gpu1
"""


class Cluster:
    """Three nodes with two virtual GPUs of 4 GiB each. Ends, with all that runs in it, when this process does."""

    def __init__(self, shown=()):
        """`shown` are folders that its user is to reach, of the caller's home."""
        if os.geteuid() != 0:
            pytest.fail("a Slurm cluster in namespaces needs root")
        for command, package in (("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"), ("munged", "munge"), ("ip", "iproute2")):
            need(command, package, "slurm-wlm-basic-plugins")
        # Everybody may pass through it, and its names are short: sockets have little room.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-fleet-"))
        self.folder.chmod(0o755)
        self.jobs = self.folder / "jobs"
        self.jobs.mkdir()
        self.lake = self.folder / "lake"
        self.lake.mkdir()
        os.chown(self.jobs, NUMBER, NUMBER)
        self.conf("escaped=mark")
        (self.folder / "slurm.conf").write_text(SLURM.format(folder=self.folder))
        (self.folder / "gres.conf").write_text(GRES)
        for name, line in (("passwd", f"{USER}:x:{NUMBER}:{NUMBER}::/mnt/jobs:/bin/bash\n"), ("group", f"{USER}:x:{NUMBER}:\n")):
            (self.folder / name).write_text(pathlib.Path("/etc", name).read_text() + line)
        addresses = "".join(f"10.77.0.{11 + place} {node}\n" for place, node in enumerate(NODES))
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 ctl\n" + addresses)
        for name in ("job.py", "workers.py"):
            shutil.copy(HERE / name, self.jobs / name)
        self.output = open(self.folder / "cluster.out", "w")
        command = ["unshare", "--pid", "--mount", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc", HERE / "cluster", self.folder, *NODES]
        self.process = subprocess.Popen(command, env=environment(WEIR_STAGE=STAGE, WEIR_SHOWN=":".join(map(str, shown))), stdin=subprocess.PIPE,
                                        stdout=self.output, stderr=self.output, preexec_fn=die_with_parent)
        try:
            until(lambda: self.process.poll() is not None or "ready" in self.log("cluster.out"), lambda: self.logs())
            if self.process.poll() is not None:
                pytest.fail(self.logs())
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            self.init = children.read_text().strip()
            until(lambda: self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%T").stdout.split() == ["idle"] * 3, self.logs)
        except BaseException:
            self.end()
            raise

    def conf(self, more=""):
        """Writes plugstack.conf; a changed one is in force for the next job."""
        words = "library=/mnt/weir/lib/libweir.so command=/mnt/weir/bin/weir default=1G default:small=512M max=2G max:small=512M"
        words += " default:open=100% max:open=100% shards_per_gpu=4 gpu_size=4G"
        (self.folder / "plugstack.conf").write_text(f"required /mnt/weir/lib/weir_slurm.so {words} {more}\n")

    def log(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.[lo][ou][gt]"))

    def command(self, *command, place="ctl", user="root", timeout=90, quiet=False, **variables):
        """Runs a command in the cluster, on one of its machines."""
        inside = [] if place == "ctl" else ["nsenter", "-t", self.log(f"{place}.pid").strip(), "-m", "-n", "-u"]
        who = [] if user == "root" else ["setpriv", "--reuid", NUMBER, "--regid", NUMBER, "--clear-groups"]
        env = environment(SLURM_CONF=self.folder / "slurm.conf", HOME="/mnt/jobs", LD_LIBRARY_PATH="/mnt/weir/vgpu", VGPU_STRICT="on", VGPU_MEM="4GiB",
                          VGPU_DEVICES=2, WEIR_RING="4K,1K", PYTHONDONTWRITEBYTECODE=1, **variables)
        if user == "root":
            env = environment(SLURM_CONF=self.folder / "slurm.conf")
        whole = ["nsenter", "-t", self.init, "-m", "-n", "-u", "-i", "-p", *inside, *who, *command]
        whole = [str(word) for word in whole]
        if not quiet:
            print("$", *map(str, command), file=sys.stderr)
        done = subprocess.run(whole, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=timeout, errors="replace")
        if not quiet:
            print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        return done

    def srun(self, *arguments, **how):
        return self.command("srun", "-D", "/mnt/jobs", *arguments, user=USER, **how)

    def sbatch(self, script, *arguments, **variables):
        """Submits a batch script; the number of the job."""
        path = self.jobs / f"script-{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        done = self.command("sbatch", "--parsable", "-D", "/mnt/jobs", "-o", "/mnt/jobs/%j.out", *arguments, f"/mnt/jobs/{path.name}", user=USER, **variables)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def show(self, job):
        """What Slurm says of a job: its fields."""
        text = self.command("scontrol", "--oneliner", "show", "job", job, quiet=True).stdout
        return {name: value for name, _, value in (part.partition("=") for part in split_fields(text))}

    def kill(self, node):
        """Kills all that runs on a node, at once, as a power cut does; how many processes that were."""
        network = os.readlink(f"/proc/{self.inside(node)}/ns/net")
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                found += [int(pid)] if os.readlink(f"/proc/{pid}/ns/net") == network else []
            except OSError:
                pass
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return len(found)

    def inside(self, node):
        """The first process of a node, by its number outside."""
        number = self.log(f"{node}.pid").strip()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                same = os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{self.init}/ns/pid")
            except OSError:
                continue
            if same and status.split("NSpid:")[1].split("\n")[0].split()[-1] == number:
                return pid
        pytest.fail(f"no node {node}")

    def ended(self, job, without=None, seconds=PATIENCE):
        """Waits until a job has ended, its epilogs too; what Slurm says of it."""
        def over():
            shown = self.show(job)
            state = shown.get("JobState", "")
            return shown if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED") else None
        shown = until(over, lambda: f"the end of job {job}\n{self.logs()}", seconds)
        until(lambda: not set(self.folders(job)) - {without}, lambda: f"the epilogs of job {job}\n{self.logs()}")
        return self.show(job)

    def folders(self, job):
        """The nodes that still keep something of a job."""
        return [node for node in NODES if self.command("test", "-e", f"/run/weir-slurm/{job}", place=node, quiet=True).returncode == 0]

    def comment(self, job):
        return self.ended(job).get("AdminComment", "")

    def out(self, job):
        path = self.jobs / f"{job}.out"
        return path.read_text() if path.exists() else ""

    def explain(self, job):
        """What there is to see of a job that did not do what it should."""
        print(self.out(job), self.logs(), self.command("ls", "-l", "/mnt/jobs", "/mnt/jobs/.local/state/weir").stdout, sep="\n", file=sys.stderr)
        self.command("/mnt/weir/bin/weir", "report", "--check", "--job", job, user=USER)
        return f"see above for job {job}"

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def die_with_parent():
    """The kernel ends unshare with this process, and with unshare the first process of its namespace, and with that all others."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def split_fields(line):
    """`A=1 B=two words C=3` as its fields: a field begins at a word with a capital and an equals sign."""
    fields = []
    for word in line.split(" "):
        if "=" in word and word[:1].isupper():
            fields.append(word)
        elif fields:
            fields[-1] += " " + word
    return [field.strip() for field in fields]


def lines(text):
    """The lines of JSON that jobs have printed."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
