#!/usr/bin/env python3
"""Tests of the weir command as a user meets it: real processes, terminals, signals, files, jobs on the virtual GPU.

usage: tests/cli/cases.py --list | --exact NAME

The suite `cli` of weir-tests runs each case as a trial; what scripts/build --tests stages must be there.
"""
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import hostile
import told
from scene import BARE, JOB, LIBRARY, PATIENCE, ROOT, WEIR, Scene, eventually, in_a_terminal


def the_exit_code_is_the_jobs(scene):
    for command, code in [(["true"], 0), (["false"], 1), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "exit 255"], 255),
                          (["sh", "-c", "kill -9 $$"], 137), (["sh", "-c", "kill -SEGV $$"], 139)]:
        scene.weir("run", "--", *command, code=code)


def what_cannot_be_started_is_told_as_env_does(scene):
    plain = os.path.join(scene.folder, "plain")
    open(plain, "w").write("text")
    assert "no-such-command" in scene.weir("run", "--", "no-such-command", code=127).stderr
    scene.weir("run", "--", plain, code=126)
    scene.weir("run", "--", scene.folder, code=126)
    for arguments, word in [(["--cap", "8XiB", "--", "true"], "--cap"), (["--group", "a/b", "--", "true"], "--group"),
                            (["--on-cap", "never", "--", "true"], "--on-cap"), (["--keep", "x", "--", "true"], "--keep"),
                            (["--vgpu", "much", "--", "true"], "--vgpu"), ([], "no command"),
                            (["--vgpu", "8", "--", "true"], "did you mean 8GiB?"),
                            (["--no-such-option"], "--no-such-option"),
                            (["--library", "/nowhere.so", "--", "true"], "/nowhere.so")]:
        done = scene.weir("run", *arguments, code=125)
        assert word in done.stderr, done.stderr
    assert scene.weir("run", "--help").stdout


def input_and_output_are_the_jobs(scene):
    done = scene.weir("run", "--", "cat", stdin="hello\n")
    assert done.stdout == "hello\n" and done.stderr == "", done


def arguments_of_the_job_are_left_alone(scene):
    done = scene.weir("run", "--cap", "1GiB", "sh", "-c", 'echo "$@"', "x", "--json", "-o", "--cap")
    assert done.stdout == "--json -o --cap\n", done.stdout


COUNTS = """
import signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: seen.append(number))
print("ready", flush=True)
end = time.time() + 100
while not seen and time.time() < end:
    time.sleep(0.05)
time.sleep(0.5)
sys.exit(50 + len(seen))
"""


def a_signal_to_weir_alone_reaches_the_job_once(scene):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        process = scene.start("run", "--", sys.executable, "-c", COUNTS, start_new_session=True)
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(PATIENCE) == 51, (number, process.returncode, process.stderr.read())


def a_key_on_the_terminal_reaches_the_job_once(scene):
    shown, code = in_a_terminal(scene, [WEIR, "run", "--", sys.executable, "-c", COUNTS], b"\x03", b"ready")
    assert code == 51, (code, shown)


def the_job_has_the_terminal(scene):
    script = "import os, sys; print(sys.stdin.isatty(), os.tcgetpgrp(0) == os.getpgrp(), os.getpgrp() == os.getpgid(os.getppid()))"
    shown, code = in_a_terminal(scene, [WEIR, "run", "--", sys.executable, "-c", script], b"", b"")
    assert (code, shown.strip()) == (0, "True True True"), shown


def state_of(pid):
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]


def stopping_and_going_on_works_for_both(scene):
    # The key may be pressed at any time, also while the job is being started.
    for number in range(40):
        # A job of an interactive shell is a process group of its own.
        process = scene.start("run", "--", "cat", process_group=0, stdin=subprocess.PIPE)
        children, end = f"/proc/{process.pid}/task/{process.pid}/children", time.time() + PATIENCE
        while not (child := open(children).read().strip()):
            assert time.time() < end
        if number % 4 == 0:
            eventually(lambda: open(f"/proc/{child}/comm").read() == "cat\n")
        os.killpg(process.pid, signal.SIGTSTP)
        eventually(lambda: state_of(process.pid) == "T" and state_of(child) == "T")
        os.killpg(process.pid, signal.SIGCONT)
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def what_was_ignored_stays_ignored(scene):
    script = "import signal; print(signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM))"
    line = f"trap '' HUP; exec {WEIR} run -- {sys.executable} -c '{script}'"
    done = subprocess.run(["sh", "-c", line], env=scene.env, capture_output=True, text=True, timeout=PATIENCE)
    ignored, default = done.stdout.split()
    assert "SIG_IGN" in ignored or ignored == "1", done.stdout
    assert "SIG_DFL" in default or default == "0", done.stdout


def the_environment_is_composed(scene):
    show = ["--", sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    seen = json.loads(scene.weir("run", "--cap", "1GiB", *show).stdout)
    assert seen["WEIR_CAP"] == "1GiB" and os.path.samefile(seen["LD_PRELOAD"], LIBRARY)
    assert seen["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    other = "/lib/x86_64-linux-gnu/libdl.so.2"
    seen = json.loads(scene.weir("run", *show, LD_PRELOAD=other).stdout)
    assert seen["LD_PRELOAD"].split(":")[0] == other and len(seen["LD_PRELOAD"].split(":")) == 2
    seen = json.loads(scene.weir("run", *show, LD_PRELOAD=os.path.realpath(LIBRARY)).stdout)
    assert ":" not in seen["LD_PRELOAD"], "the library must not be named twice"
    assert json.loads(scene.weir("run", *show, TF_GPU_ALLOCATOR="cuda_malloc").stdout)["TF_GPU_ALLOCATOR"] == "cuda_malloc"
    assert "TF_GPU_ALLOCATOR" not in json.loads(scene.weir("run", "--tf-allocator", "keep", *show).stdout)
    seen = json.loads(scene.weir("run", "--vgpu", "2GiB", *show, LD_LIBRARY_PATH="/x").stdout)
    assert seen["VGPU_MEM"] == "2GiB" and seen["LD_LIBRARY_PATH"].endswith("/vgpu:/x")


def every_option_has_its_variable(scene):
    help_text = scene.weir("run", "--help").stdout
    values = {"--cap": "1GiB", "--group": "g", "--on-cap": "wait:3s", "--spill": "1GiB", "--warn": "90%", "--pool": "off",
              "--dir": "/d", "--tf-allocator": "keep", "--stacks": "all", "--ring": "64K", "--keep": "3", "--journal": "on",
              "--oom-text": "off"}
    # An option and, in brackets behind its description, the variable: in the same paragraph.
    paragraphs = re.split(r"\n\s*\n", help_text)
    pairs = {}
    for paragraph in paragraphs:
        option = re.search(r"(--[a-z-]+)", paragraph)
        variable = re.search(r"\((WEIR_[A-Z_]+)(?:=(\S+))?\)", " ".join(paragraph.split()))
        if option and variable:
            pairs[option.group(1)] = variable.groups()
    assert set(values) | {"--no-journal", "--strict", "--no-strict"} == set(pairs), pairs
    for option, (variable, fixed) in pairs.items():
        given = [option] if fixed else [option, values[option]]
        printed = scene.weir("run", *given, "--print-env").stdout
        assert f"export {variable}={fixed or values[option]}\n" in printed, printed


def every_bad_value_is_one_line_before_anything_starts(scene):
    bad = {"--cap": "5x", "--group": "a/b", "--on-cap": "wait", "--spill": "lots", "--warn": "101%", "--pool": "nostea",
           "--tf-allocator": "bfc", "--stacks": "some", "--ring": "100k", "--keep": "many", "--journal": "yes", "--oom-text": "1"}
    mark = os.path.join(scene.folder, "started")
    variables = dict(re.findall(r"^\| `(WEIR_[A-Z_]+)` \| `(--[a-z-]+)",
                                open(os.path.join(ROOT, "docs/reference/environment.md")).read(), re.M))
    assert set(bad) == set(variables.values()) - {"--strict"}, variables
    for option, value in bad.items():
        variable = next(name for name, flag in variables.items() if flag == option)
        for done in (scene.weir("run", option, value, "--", "touch", mark, code=125),
                     scene.weir("run", "--", "touch", mark, code=125, **{variable: value})):
            assert done.stderr.count("\n") == 1 and value in done.stderr, done.stderr
        assert option in scene.weir("run", option, value, "--", "true", code=125).stderr
        assert variable in done.stderr, done.stderr
    scene.weir("run", "--on-cap", "spill", "--pool", "off", "--", "touch", mark, code=125)
    scene.weir("run", "--", "touch", mark, code=125, WEIR_STRICT="maybe")
    assert not os.path.exists(mark)
    # A flag replaces what is inherited, and an unknown variable is none of this command's business.
    scene.weir("run", "--ring", "64K", "--", "true", WEIR_RING="100k", WEIR_METRICS_SERVICE_HOST="10.0.0.1", WEIR_CPA="1")


def limit_of(done):
    """What `weir run --json` said at the end."""
    return json.loads(done.stderr.strip().splitlines()[-1])


def who_came_under_weir_is_known_at_the_end(scene):
    told = limit_of(scene.job("well", weir=["--json", "--cap", "256MiB"]))
    assert told["limit"]["in_force"] and told["limit"]["cap"] == "256MiB", told
    [process] = told["processes"]
    assert process["state"] == "on" and process["pid"] == told["runs"][0]["pid"], told
    assert [device["cap"] for device in process["devices"]] == [256 << 20], told
    # It does not matter how a process ends, nor that another `weir run` stands between.
    nested = [WEIR, "run", "--", "sh", "-c", f"{sys.executable} {JOB} killed; {sys.executable} {JOB} well"]
    told = limit_of(scene.weir("run", "--vgpu", "512MiB", "--json", "--cap", "256MiB", "--", *nested))
    assert len(told["processes"]) == 2 and told["limit"]["in_force"], told
    assert not [name for name in os.listdir(scene.runs) if name.startswith("run-")], os.listdir(scene.runs)
    assert os.listdir(os.path.join(scene.runs, "ledger")) == [], "the job's ledger goes with it"


def a_job_that_no_cap_held_is_told(scene):
    lost = "no process of the job used CUDA under weir, so the cap of 256MiB was not in force"
    bare = ["env", "-u", "LD_PRELOAD", sys.executable, JOB, "well"]
    for command in (bare, ["true"]):
        capped = ["run", "--vgpu", "512MiB", "--cap", "256MiB"]
        done = scene.weir(*capped, "--", *command)
        assert lost in done.stderr and done.stderr.count("\n") == 1, done.stderr
        done = scene.weir(*capped, "--strict", "--", *command, code=125)
        assert lost in done.stderr and "--strict" in done.stderr, done.stderr
        told = limit_of(scene.weir(*capped, "--json", "--", *command))
        assert told["processes"] == [] and not told["limit"]["in_force"] and lost in told["limit"]["problem"], told
    assert scene.weir("run", "--", "true").stderr == "", "without a limit there is nothing to say"


def a_cap_for_a_device_that_nobody_sees_is_told(scene):
    job = [sys.executable, JOB, "well"]
    done = scene.weir("run", "--vgpu", "512MiB", "--cap", "5=256MiB", "--", *job, code=1)
    assert "cuInit failed" in done.stderr and "no such device" in done.stderr, done.stderr
    scene.weir("run", "--vgpu", "512MiB", "--cap", "5=256MiB", "--strict", "--", *job, code=125)
    hidden = dict(VGPU_DEVICES="2", CUDA_VISIBLE_DEVICES="0")
    done = scene.weir("run", "--vgpu", "512MiB", "--cap", "1=256MiB", "--", *job, **hidden)
    assert "no process of the job could see device 1" in done.stderr, done.stderr
    scene.weir("run", "--vgpu", "512MiB", "--cap", "1=256MiB", "--strict", "--", *job, code=125, **hidden)
    done = scene.weir("run", "--vgpu", "512MiB", "--cap", "0=256MiB,1=128MiB", "--", "sh", "-c",
                      f"CUDA_VISIBLE_DEVICES=1 {sys.executable} {JOB} well; {sys.executable} {JOB} well", **hidden)
    assert "could see" not in done.stderr, done.stderr


def a_limit_that_cannot_be_kept_is_told(scene):
    os.mkdir(os.path.join(scene.runs, "ledger"))
    os.chmod(os.path.join(scene.runs, "ledger"), 0o777)
    done = scene.job("well", weir=["--cap", "256MiB"], code=125)
    assert "no directory for the ledger" in done.stderr and "others can write" in done.stderr, done.stderr
    done = scene.job("well", weir=["--cap", "256MiB", "--cap-per-process"])
    assert "in_force" not in done.stderr
    told = limit_of(scene.job("well", weir=["--cap", "7=256MiB", "--cap-per-process", "--no-strict", "--json"]))
    assert told["processes"][0]["state"] == "without" and not told["limit"]["in_force"], told
    assert "1 of 1 processes ran without the cap" in told["limit"]["problem"], told


def a_cap_is_one_of_the_whole_job(scene):
    # Three workers take what they can get, on one device that all of them share; the device itself counts.
    whole, each = [], []
    for options, sums in (([], whole), (["--cap-per-process"], each), (["--group", "team"], whole)):
        shared = os.path.join(scene.folder, f"device-{len(whole)}-{len(each)}")
        done = scene.weir("run", "--vgpu", "2GiB", "--cap", "512MiB", *options, "--", sys.executable, JOB, "workers",
                          VGPU_SHARED=shared, VGPU_BACKING="none")
        sums.append(sum(map(int, done.stdout.split())) >> 20)
    assert all(480 <= taken <= 512 for taken in whole) and 1400 <= each[0] <= 1536, (whole, each)


def the_environment_is_printed_for_each_place(scene):
    odd = "0=1GiB,1=50%"
    shell = scene.weir("run", "--cap", odd, "-o", "it's here", "--print-env").stdout
    shown = subprocess.run(["sh", "-c", shell + "env -i WEIR_CAP=$WEIR_CAP WEIR_DIR=\"$WEIR_DIR\" env"],
                           capture_output=True, text=True, env=dict(BARE)).stdout
    assert f"WEIR_CAP={odd}" in shown and f"WEIR_DIR={scene.folder}/it's here" in shown, shown
    assert f'ENV WEIR_CAP="{odd}"' in scene.weir("run", "--cap", odd, "--print-env=docker").stdout
    assert f'env:\n- name: WEIR_CAP\n  value: "{odd}"\n' in scene.weir("run", "--cap", odd, "--print-env=k8s").stdout
    assert f"export WEIR_CAP={odd}" in scene.weir("run", "--cap", odd, "--print-env=slurm").stdout


def a_job_that_uses_no_gpu_leaves_no_word(scene):
    done = scene.weir("run", "--", "echo", "hello")
    assert (done.stdout, done.stderr) == ("hello\n", "") and os.listdir(scene.runs) == []


def out_of_memory_from_job_to_report(scene):
    done = scene.job("oom", weir=["--cap", "256MiB"], code=1)
    last = done.stderr.strip().splitlines()[-1]
    assert "ran out of GPU memory; next: weir report" in last, done.stderr
    name = last.rsplit(" ", 1)[1]
    done = scene.job("survives", weir=["--cap", "256MiB", "-o", "other"])
    last = done.stderr.strip().splitlines()[-1]
    assert "exited normally, although requests for GPU memory were refused; next: weir report" in last, done.stderr
    text = scene.weir("report").stdout
    assert "GPU OUT OF MEMORY" in text and "job.py oom" in text, text
    told.one_screen(text)
    scene.weir("report", "--check", code=3)
    report = json.loads(scene.weir("report", name, "--json").stdout)
    assert report["schema"] == 2 and report["run"] == name and report["oom"] > 0
    assert report["cap"] == 256 << 20 and report["request"]["bytes"] == 32 << 20
    assert report["findings"][0]["cause"] == "cap", report["findings"]
    assert sum(part[1] for part in report["driver"]["parts"]) == report["driver"]["total"]
    assert report["driver"]["total"] == 512 << 20
    live = dict(report["driver"]["parts"])["live"]
    assert 192 << 20 <= live <= 256 << 20, report["driver"]
    assert sum(h["bytes"] for h in report["holders"]) + report["rest"] == live
    assert report["remedies"] and all(r["check"] in ("replayed", "estimated") for r in report["remedies"]), report["remedies"]
    assert "(estimated from the requests up" in " ".join(text.split()), text
    untried = json.loads(scene.weir("report", name, "--json", "--no-replay").stdout)["remedies"]
    assert untried and all(r["how"] == "estimated, not replayed: --no-replay says so" for r in untried), untried


def a_job_that_ends_well_is_told_with_what_to_type(scene):
    done = scene.job("well")
    assert re.search(r"weir: recorded; next: weir report \S+", done.stderr), done.stderr
    assert scene.job("well", weir=["--quiet"]).stderr == ""
    scene.weir("report", "--check")
    text = scene.weir("report").stdout
    assert "ENDED" in text and "nothing was refused" in text, text


def a_job_that_is_killed_can_be_read(scene):
    process = scene.start_job("hold")
    child = eventually(lambda: open(f"/proc/{process.pid}/task/{process.pid}/children").read().strip())
    listed = json.loads(scene.weir("list", "--json").stdout)
    assert [row["state"] for row in listed] == ["alive"], listed
    report = json.loads(scene.weir("report", child, "--json").stdout)
    assert report["state"] == "alive" and report["evidence"]["moving"]
    assert dict(report["driver"]["parts"])["live"] >= 96 << 20
    os.kill(int(child), signal.SIGKILL)
    assert process.wait(PATIENCE) == 137
    assert [row["state"] for row in json.loads(scene.weir("list", "--json").stdout)] == ["killed"]
    report = json.loads(scene.weir("report", child, "--json").stdout)
    assert report["state"] == "killed" and dict(report["driver"]["parts"])["live"] >= 96 << 20
    assert "KILLED OR CRASHED" in scene.weir("report", child).stdout


def runs_are_listed(scene):
    assert "no runs in" in scene.weir("list").stdout
    assert json.loads(scene.weir("list", "--json").stdout) == []
    leak = scene.synthetic("growth")
    scene.synthetic("well")
    open(os.path.join(scene.runs, "1-2.weir"), "w").write("#!/bin/sh\n")
    rows = json.loads(scene.weir("list", "--json").stdout)
    assert sorted(row["state"] for row in rows) == ["ended", "killed", "unreadable"], rows
    text = scene.weir("list").stdout
    assert "OOM" in text and "is not a weir journal" in text and "train.py --batch 64" in text, text
    assert len(json.loads(scene.weir("list", "--oom", "--json").stdout)) == 1
    assert json.loads(scene.weir("list", "--oom", "--json").stdout)[0]["path"] == leak
    piped = subprocess.run(["sh", "-c", f"'{WEIR}' list | head -1"], env=scene.env, capture_output=True, text=True)
    assert piped.stdout.startswith("RUN") and piped.stderr == "", piped


def verdicts_reach_the_command(scene):
    for kind in ("growth", "fragmentation", "cap"):
        path = scene.synthetic(kind)
        report = json.loads(scene.weir("report", path, "--json").stdout)
        assert report["findings"][0]["cause"] == kind, (kind, report["findings"])
    assert "train.py:131" in scene.weir("report", json.loads(scene.weir("list", "--json").stdout)[-1]["run"]).stdout


def errors_name_the_file_and_the_remedy(scene):
    broken = os.path.join(scene.folder, "broken.weir")
    well = scene.synthetic("well")
    shutil.copy(well, broken)
    with open(broken, "r+b") as file:
        file.seek(40)
        file.write(b"\xff")
    for arguments, words in [(["/nowhere/x.weir"], ["/nowhere/x.weir", "weir list"]), (["nothing"], ["nothing", "weir list"]),
                             (["./broken.weir"], ["broken.weir", "damaged header"]), ([well, "--oom", "9"], ["no out-of-memory dump 9"]),
                             (["--oom"], [scene.runs, "has no run that ran out of memory", "weir list"]),
                             (["--device", "7"], ["has no device 7; it has 0"]), ([scene.runs], ["is a directory", "--dir"]),
                             (["--dir", scene.folder + "/empty"], ["no runs yet", "weir run"])]:
        done = scene.weir("report", *arguments, code=1)
        assert all(word in done.stderr for word in words) and done.stdout == "", done.stderr


def colour_is_for_terminals_only(scene):
    scene.synthetic("growth")
    assert "\x1b[" not in scene.weir("report").stdout
    shown, _ = in_a_terminal(scene, [WEIR, "report"], b"", b"")
    assert "\x1b[1;31m" in shown and "GROWTH" in shown, shown
    shown, _ = in_a_terminal(scene, [WEIR, "report"], b"", b"", NO_COLOR="1")
    assert "\x1b[" not in shown and "GROWTH" in shown, shown


def has_open(pid, path):
    links = [os.path.join(f"/proc/{pid}/fd", number) for number in os.listdir(f"/proc/{pid}/fd")]
    return any(os.path.exists(link) and os.path.samefile(link, path) for link in links)


def events_are_followed(scene):
    path = scene.synthetic("growth")
    lines = scene.weir("tail", path, "--all", "--json").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert len(events) == json.loads(scene.weir("report", path, "--json").stdout)["evidence"]["events"]
    assert [event["seq"] for event in events] == list(range(len(events)))
    last = scene.weir("tail", path, "--all", "--kind", "oom").stdout.splitlines()
    assert len(last) == 1 and "Conv2DBackpropInput" in last[0] and "train.py:121" in last[0], last
    assert "unknown kind" in scene.weir("tail", "--kind", "nonsense", code=1).stderr
    process = scene.start_job("steps", "go")
    [journal] = [row["path"] for row in json.loads(scene.weir("list", "--json").stdout) if row["state"] == "alive"]
    follower = scene.start("tail", "--json", "--kind", "alloc,exit")
    eventually(lambda: has_open(follower.pid, journal))
    open(os.path.join(scene.folder, "go"), "w").close()
    out, problems = follower.communicate(timeout=PATIENCE)
    assert process.wait(PATIENCE) == 0 and follower.returncode == 0, problems
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds.count("alloc") > 10 and kinds[-1] == "exit", kinds[-3:]


def a_recording_keeps_what_the_journal_forgets(scene):
    # The ring holds the events of some two seconds: a recorder that looks fifty times a second comes by in time.
    process = scene.start_job("steps", "go", weir=["--ring", "512"])
    recorder = scene.start("record", "--json", "-o", "run.weirrec")
    eventually(lambda: os.path.exists(os.path.join(scene.folder, "run.weirrec")))
    open(os.path.join(scene.folder, "go"), "w").close()
    out, problems = recorder.communicate(timeout=PATIENCE)
    assert process.wait(PATIENCE) == 0 and recorder.returncode == 0, problems
    told = json.loads(out)
    report = json.loads(scene.weir("report", "./run.weirrec", "--json").stdout)
    journal = json.loads(scene.weir("report", "--json").stdout)
    assert journal["evidence"]["overwritten"] > 0, journal["evidence"]
    assert report["evidence"]["events"] == told["events"] > journal["evidence"]["events"], (told, journal["evidence"])
    assert report["state"] == "ended" and report["evidence"]["overwritten"] == 0
    assert "--force" in scene.weir("record", "-o", "run.weirrec", code=1).stderr
    scene.weir("record", "-o", "run.weirrec", "--force")
    assert "already a recording" in scene.weir("record", "./run.weirrec", "-o", "b", code=1).stderr


def a_recording_is_whole_when_it_is_stopped(scene):
    process = scene.start_job("hold")
    recorder = scene.start("record", "-o", "held.weirrec")
    # From its first page on it ends in order when it is asked to.
    held = os.path.join(scene.folder, "held.weirrec")
    eventually(lambda: os.path.exists(held) and os.path.getsize(held) > 16)
    recorder.send_signal(signal.SIGINT)
    assert recorder.wait(PATIENCE) == 0, recorder.stderr.read()
    process.terminate()
    process.wait(PATIENCE)
    report = json.loads(scene.weir("report", "./held.weirrec", "--json").stdout)
    assert dict(report["driver"]["parts"])["live"] >= 96 << 20


def a_name_that_is_no_text_is_a_name(scene):
    odd = os.path.join(os.fsencode(scene.runs), b"1-\xff\xfe.weir")
    os.rename(scene.synthetic("growth"), odd)
    done = subprocess.run([os.fsencode(WEIR), b"report", odd], env=scene.env, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0 and b"GROWTH" in done.stdout, done
    for arguments in (["list"], ["list", "--json"], ["report"], ["report", "--json"], ["diff", odd, odd, "--json"],
                      ["record", "--json", "-o", b"\xff.weirrec"], ["export", "--to", "csv", "-o", b"\xff.csv"]):
        done = subprocess.run([WEIR, *arguments], env=scene.env, capture_output=True, timeout=PATIENCE, cwd=scene.folder)
        assert done.returncode == 0 and b"panicked" not in done.stderr, (arguments, done)


def what_is_no_plain_file_is_written_to_and_stays(scene):
    scene.synthetic("growth")
    pipe, link = os.path.join(scene.folder, "pipe"), os.path.join(scene.folder, "link")
    os.mkfifo(pipe)
    os.symlink("real", link)
    open(os.path.join(scene.folder, "real"), "w").close()
    for arguments, start in [(["report", "--html"], b"<!doctype html"), (["export", "--to", "csv", "-o"], b"event,")]:
        with tempfile.TemporaryFile() as through:
            reader = subprocess.Popen(["cat", pipe], stdout=through)
            scene.weir(*arguments, pipe)
            assert reader.wait(PATIENCE) == 0 and stat.S_ISFIFO(os.stat(pipe).st_mode)
            through.seek(0)
            assert through.read(20).lower().startswith(start), arguments
        scene.weir(*arguments, link)
        assert os.path.islink(link) and open(link, "rb").read().lower().startswith(start), arguments
    assert sorted(os.listdir(scene.folder)) == ["link", "pipe", "real", "runs"]
    with open("/dev/full", "w") as full:
        for arguments in (["list"], ["report"], ["report", "--json"], ["cap"], ["replay"], ["tail", "--all", "--no-follow"]):
            done = subprocess.run([WEIR, *arguments], env=scene.env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
            assert done.returncode == 1 and "No space left" in done.stderr and "panicked" not in done.stderr, (arguments, done)


def a_reader_that_has_seen_enough_ends_a_command_quietly(scene):
    scene.synthetic("growth")
    for arguments in ("list", "report", "report --json", "tail --all --no-follow", "export --to jsonl -o -", "man", "completions bash"):
        done = subprocess.run(["sh", "-c", f"'{WEIR}' {arguments} | true"], env=scene.env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.stderr == "" or arguments.startswith("export"), (arguments, done.stderr)
        assert "panicked" not in done.stderr, done.stderr


def a_page_is_written_whole_or_not_at_all(scene):
    scene.synthetic("growth")
    scene.weir("report", "--html", "report.html")
    page = open(os.path.join(scene.folder, "report.html")).read()
    assert page.lstrip().lower().startswith("<!doctype html") and page.rstrip().endswith("</html>")
    scene.weir("report", "--html", "/nowhere/report.html", code=1)
    assert sorted(os.listdir(scene.folder)) == ["report.html", "runs"]


TESTS = [value for value in [*globals().values(), *vars(told).values(), *hostile.TESTS] if callable(value) and getattr(value, "__code__", None)
         and value.__code__.co_varnames[:1] == ("scene",) and value.__code__.co_argcount == 1]


def main():
    cases = {test.__name__: test for test in TESTS}
    if sys.argv[1:] == ["--list"]:
        return print("\n".join(cases))
    if len(sys.argv) != 3 or sys.argv[1] != "--exact" or sys.argv[2] not in cases:
        sys.exit(__doc__)
    # A shell starts what runs in the background with SIGINT ignored, and so would be every job here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="weir-cli-", ignore_cleanup_errors=True) as folder:
        cases[sys.argv[2]](Scene(folder))


main()
