"""Tests of what commands tell: one screen, JSON from every command, pages, bars, and runs from before the machine was booted."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

from scene import PATIENCE, SYNTHETIC, WEIR, in_a_terminal


def one_screen(text, lines=30, columns=80):
    assert len(text.splitlines()) <= lines, f"{len(text.splitlines())} lines\n{text}"
    wide = [line for line in text.splitlines() if len(line) > columns]
    assert not wide, wide


def without_bar(shown):
    """What stays on a terminal: a bar that was drawn because the machine is slow has erased itself."""
    return re.sub("\r[^\r\n]*\x1b\\[K", "", shown)


def a_report_is_one_screen(scene):
    paths = {kind: scene.synthetic(kind) for kind in ("growth", "fragmentation", "cap", "well")}
    paths["busy"] = scene.synthetic("busy", "100000")
    for kind, path in paths.items():
        for columns in (80, 100, 132):
            text = scene.weir("report", path, COLUMNS=str(columns)).stdout
            one_screen(text, 30, columns)
            assert text.startswith("━━ ") and "\nWho holds it" in text and "\nLog complete" in text, text
            assert kind == "well" or text.index("\nWhy ") < text.index("\nDevice "), text
    shown, _ = in_a_terminal(scene, [WEIR, "report", paths["busy"]], size=(24, 80), NO_COLOR="1")
    one_screen(without_bar(shown), 23)
    shown, _ = in_a_terminal(scene, [WEIR, "report", paths["busy"]], size=(60, 120), NO_COLOR="1")
    one_screen(without_bar(shown), 30, 120)
    # A bar is no line of the screen, however long it was there.
    bar = "\rreading events [###···] 1 s \x1b[K\rchecking what would help [·#·] 2 s \x1b[K\r\x1b[K"
    assert without_bar(bar + "a\r\nb\r\n") == "a\r\nb\r\n"
    # The parts in the text are those of the JSON, which add up; so are holders and the rest of them.
    report = json.loads(scene.weir("report", paths["busy"], "--json").stdout)
    text = scene.weir("report", paths["busy"]).stdout
    assert len(re.findall(r"^  \S .* %", text, re.M)) == len(report["driver"]["parts"]), text
    assert len(report["holders"]) == 10 and len(re.findall(r"^ ?\d+ .*train.py", text, re.M)) == 5, text
    assert len(re.findall(r"^ ?\d+ .*train.py", scene.weir("report", paths["busy"], "--top", "12").stdout, re.M)) == 12


def what_the_screen_leaves_out_is_in_the_details(scene):
    path = scene.synthetic("growth")
    short, long = scene.weir("report", path).stdout, scene.weir("report", path, "--details").stdout
    for word in ("64.0 MiB pinned", "232 use 7.30 GiB, none idle; beside it 0", "Rule      GROWTH, strength 95", "Made-up GPU", path[-20:]):
        assert word in long and word not in short, (word, long)
    for word in ("GROWTH: train.py:131", "also CAP", "activations 4.30 GiB", "look at train.py:131"):
        assert word in short and word in long, (word, short)
    one_screen(long, 60)
    scene.weir("report", path, "--details", "--json", code=2)


def every_command_answers_in_json(scene):
    leak, pages = scene.synthetic("growth"), os.path.join(scene.folder, "pages")
    # clap's own list: a page for each command.
    told = json.loads(scene.weir("man", "--out", pages, "--json").stdout)
    assert sorted(told["files"]) == sorted(os.listdir(pages)) and told["folder"] == pages
    commands = {name[len("weir-"):-len(".1")] for name in told["files"] if name != "weir.1"}
    job = ["--", sys.executable, "-c", "print('out')"]
    ways = {
        "run": ["--cap", "1GiB", "--print-env"], "report": [], "list": [], "tail": ["--all", "--no-follow", "--kind", "oom"],
        "record": ["-o", "r.weirrec"], "cap": [], "doctor": [], "diff": [leak, leak], "export": ["--to", "csv", "-o", "x.csv"],
        "replay": [], "top": [], "plan": ["--list"], "metrics": [], "completions": ["fish"], "man": [],
    }
    assert commands == set(ways), "a command that this test does not know, or that is gone"
    answers = {}
    for command, arguments in ways.items():
        done = subprocess.run([WEIR, command, "--json", *arguments], env=scene.env, capture_output=True, text=True,
                              timeout=PATIENCE, cwd=scene.folder)
        # doctor finds no driver here, and replay that the job does not fit: both are answers.
        assert done.returncode == 0 or command in ("doctor", "replay"), (command, done)
        answers[command] = json.loads(done.stdout)
    assert answers["run"]["WEIR_CAP"] == "1GiB" and answers["run"]["LD_PRELOAD"].endswith("libweir.so")
    written = answers["export"]
    assert (written["file"], written["format"], written["bytes"]) == ("x.csv", "csv", os.path.getsize(os.path.join(scene.folder, "x.csv")))
    assert answers["completions"] == {"shell": "fish", "script": scene.weir("completions", "fish").stdout}
    assert answers["man"] == {"name": "weir.1", "text": scene.weir("man").stdout}
    assert {"name": "T4", "bytes": 16 << 30} in answers["plan"]
    figures = {(one["name"], tuple(sample["labels"].items())): sample["value"] for one in answers["metrics"] for sample in one["samples"]}
    plain = [line for line in scene.weir("metrics", "--once").stdout.splitlines() if not line.startswith("#")]
    assert len(plain) == len(figures) and figures["weir_jobs", (("life", "alive"),)] == 0, figures
    # What is exported to standard output stays alone there; so does what the job prints.
    done = scene.weir("export", leak, "--to", "csv", "-o", "-", "--json")
    assert done.stdout == open(os.path.join(scene.folder, "x.csv")).read()
    assert json.loads(done.stderr) == dict(written, file=None)
    done = scene.weir("run", "--json", *job)
    assert done.stdout == "out\n" and json.loads(done.stderr)["runs"] == [], done
    assert json.loads(scene.weir("run", "--json", "--", "sh", "-c", "exit 7", code=7).stderr)["code"] == 7
    done = scene.weir("run", "--json", "--", "no-such-command", code=127)
    told = json.loads(done.stderr.splitlines()[-1])
    assert {key: told[key] for key in ("pid", "code", "runs", "processes")} == {"pid": None, "code": 127, "runs": [], "processes": []}, told
    assert "--print-env --json" in scene.weir("run", "--print-env=docker", "--json", code=125).stderr
    done = scene.job("oom", weir=["--cap", "256MiB", "--json"], code=1)
    ended = json.loads(done.stderr.splitlines()[-1])
    report = json.loads(scene.weir("report", ended["runs"][0]["run"], "--json").stdout)
    assert (ended["code"], ended["runs"][0]["oom"] > 0, ended["runs"][0]["pid"]) == (1, True, report["pid"]), ended


def facts_of(path):
    return json.loads(re.search(r'id="facts">(.*?)</script>', open(path).read(), re.S).group(1))


def a_page_is_about_what_was_asked_for(scene):
    scene.synthetic("growth")
    page = os.path.join(scene.folder, "page.html")
    for arguments, word in [(["--oom", "9"], "no out-of-memory dump 9"), (["--device", "7"], "has no device 7"), (["--top", "0"], "--top")]:
        done = scene.weir("report", "--html", page, *arguments, code=2 if "--top" in arguments else 1)
        assert word in done.stderr and not os.path.exists(page), done.stderr
    scene.weir("report", "--html", page)
    facts = facts_of(page)
    oom = next(mark["entry"] for mark in facts["marks"] if mark["kind"] == "oom")
    assert (facts["device"], facts["moment"], facts["rows"]) == (0, oom, 50), facts["moment"]
    scene.weir("report", "--html", page, "--top", "3", "--oom", "1", "--device", "0")
    assert facts_of(page)["rows"] == 3


def a_run_from_before_the_machine_was_booted_is_over(scene):
    own = str(os.getpid())
    # The same process, the same start: what differs is the boot, and a clock that is a year ahead.
    paths = {kind: scene.synthetic(kind, own) for kind in ("alive", "rebooted")}
    now = time.time()
    rows = {row["path"]: row for row in json.loads(scene.weir("list", "--json").stdout)}
    assert rows[paths["alive"]]["state"] == "alive" and rows[paths["rebooted"]]["state"] == "killed", rows
    assert all(row["pid"] == os.getpid() and abs(row["started_ns"] / 1e9 - now) < 600 for row in rows.values()), rows
    path = paths["rebooted"]
    report = json.loads(scene.weir("report", path, "--json").stdout)
    assert report["state"] == "killed" and not report["evidence"]["moving"]
    # The made-up job took a hundred seconds from its start, in all clocks.
    for at in (report["realtime_ns"], report["peak_ns"]):
        assert 0 <= at / 1e9 - rows[path]["started_ns"] / 1e9 <= 101, (at, rows[path])
    text = scene.weir("report", path).stdout
    assert "killed or crashed" in text and "still running" not in text, text
    assert time.strftime("%H:%M", time.localtime(report["realtime_ns"] / 1e9)) in text, text
    # Nobody is waited for: the tail ends, although it is to follow.
    events = [json.loads(line) for line in scene.weir("tail", path, "--all", "--json").stdout.splitlines()]
    assert len(events) == report["evidence"]["events"]
    assert all(0 <= event["realtime_ns"] / 1e9 - rows[path]["started_ns"] / 1e9 <= 101 for event in events)
    exported = scene.weir("export", path, "--to", "jsonl", "-o", "-").stdout.splitlines()
    assert [json.loads(line)["time_ns"] for line in exported] == [event["realtime_ns"] for event in events]
    # Of the two only the one that lives is watched, also by those who look for a living one.
    lives = {sample["labels"]["life"]: sample["value"] for sample in json.loads(scene.weir("metrics", "--json").stdout)[0]["samples"]}
    assert lives == {"alive": 1, "unknown": 0, "ended": 0, "killed": 0}, lives
    shown = {job["journal"]: job["life"] for job in json.loads(scene.weir("top", "--all", "--json").stdout)["jobs"]}
    assert shown == {paths["alive"]: "alive", path: "killed"}, shown
    # Numbers of processes are used again, and each container has its own: the same one is no sign of the same process.
    beside = json.loads(scene.weir("report", paths["alive"], "--json").stdout)["other_processes"]
    assert beside == [f"pid {own} train.py --batch 64"], beside
    os.remove(paths["alive"])
    assert json.loads(scene.weir("report", own, "--json").stdout)["state"] == "killed"
    scene.weir("record", "-o", "old.weirrec")
    assert json.loads(scene.weir("report", "./old.weirrec", "--json").stdout)["state"] == "killed"


def a_ledger_tells_of_the_living_only(scene):
    process = scene.start_job("hold", weir=["--group", "team", "--cap", "256MiB"])
    [journal] = [row["path"] for row in json.loads(scene.weir("list", "--json").stdout)]
    older = os.path.join(scene.runs, "1-1.weir")
    shutil.copy(journal, older)
    subprocess.run([SYNTHETIC, older, "reboot"], check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
    jobs = {job["journal"]: job for job in json.loads(scene.weir("top", "--all", "--json").stdout)["jobs"]}
    process.terminate()
    process.wait(PATIENCE)
    assert (jobs[journal]["life"], jobs[journal]["group"]) == ("alive", "team"), jobs[journal]
    assert (jobs[older]["life"], jobs[older]["group"], jobs[older]["pid"]) == ("killed", None, jobs[journal]["pid"]), jobs[older]


def what_takes_long_shows_that_it_goes_on(scene):
    # As many events as it takes on this machine for the bar to move a few times.
    for events in (1_500_000, 6_000_000, 24_000_000):
        path = scene.synthetic("busy", str(events))
        shown, code = in_a_terminal(scene, [WEIR, "report", path], NO_COLOR="1")
        bars = set(re.findall(r"checking what would help \[(·*#·*)\] \d+ s", shown))
        if len(bars) > 3:
            break
        os.remove(path)
    assert code == 0 and len(bars) > 3, shown
    assert shown.rindex("\r\x1b[K") < shown.index("GPU OUT OF MEMORY"), "the bar is gone before the report comes"
    assert scene.weir("report", path).stderr == "", "no terminal, no bar"
