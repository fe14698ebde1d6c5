"""weir top: its JSON against what a job holds, and its screen in a real terminal (tmux)."""
import itertools
import json
import os
import pathlib
import re
import signal
from types import SimpleNamespace

import pytest
from actors import actor, job, look, surroundings
from conftest import GIB, MIB, WEIR, environment, need, run, until
from prometheus_client.parser import text_string_to_metric_families


def top(folder, *more):
    return json.loads(look("top", "--json", *more, folder=folder).stdout)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A real job, looked at while it holds memory, after a refusal, after a change of its cap, and after its end."""
    folder, seen = tmp_path_factory.mktemp("real"), SimpleNamespace()
    with job(folder, WEIR_CAP="512MiB") as talk:
        seen.pid = talk.pid
        assert [talk.say(f"take {mib}") for mib in (100, 50, 30)] == ["yes"] * 3
        assert [talk.say("drop"), talk.say("drop")] == ["yes"] * 2
        seen.jobs = top(folder)["jobs"]
        seen.gpu = seen.jobs[0]["gpus"][0]
        seen.beyond_the_cap = talk.say("take 600")
        seen.after = top(folder)["jobs"][0]
        seen.text = look("top", "--once", folder=folder).stdout
        look("cap", talk.pid, "256MiB", folder=folder)
        seen.changed = top(folder)["jobs"][0]["gpus"][0]
        seen.at_last = talk.say("take 10")
    seen.living, seen.all = top(folder)["jobs"], top(folder, "--all")["jobs"]
    return seen


def test_one_job_is_seen_alive(real):
    assert [(job["pid"], job["life"]) for job in real.jobs] == [(real.pid, "alive")]


def test_cap_device_and_live_bytes_are_right(real):
    assert [real.gpu[name] for name in ("cap", "total", "live", "blocks")] == [512 * MIB, 4 * GIB, 100 * MIB, 1]


def test_what_the_pool_keeps_is_apart(real):
    assert real.gpu["charged"] == real.gpu["live"] + real.gpu["cached"] and real.gpu["cached"] >= 80 * MIB


def test_the_peak_is_not_forgotten(real):
    assert real.gpu["peak"] >= 180 * MIB


def test_holders_add_up_to_what_is_live(real):
    assert sum(holder["bytes"] for holder in real.gpu["holders"]) == real.gpu["live"]


def test_a_request_beyond_the_cap_is_refused(real):
    assert real.beyond_the_cap == "no"


def test_the_failure_is_marked(real):
    assert real.after["ooms"] >= 1 and real.after["last_oom"]["requested"] == 600 * MIB and real.after["last_oom"]["cause"] == "cap"


@pytest.mark.parametrize("words", ["out-of-memory failure", "cap 512.0 MiB", "live 100.0 MiB in 1 blocks"])
def test_the_text_says_the_same(real, words):
    assert words in real.text


def test_a_cap_that_was_changed_is_seen(real):
    assert real.changed["cap"] == 256 * MIB


def test_watching_does_not_disturb_the_job(real):
    assert real.at_last == "yes"


def test_a_killed_job_is_shown_only_with_all(real):
    assert real.living == [] and [job["life"] for job in real.all] == ["killed"]


NUMBERS = itertools.count()


class Terminal:
    """A real terminal. The shell behind the command prints its code and whether the terminal is as before."""

    def __init__(self, command, folder, **more):
        need("tmux")
        # A server of its own: one that is about to end takes no new session.
        self.socket = f"weir-{next(NUMBERS)}"
        self.env = environment(**{**surroundings(folder), "TMUX": "", "TMUX_TMPDIR": folder, **more})
        line = f"{command}; echo left with $?; stty -a | grep -o -- '-*icanon'; cat"
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", line)

    def tmux(self, *arguments):
        return run("tmux", "-L", self.socket, "-f", "/dev/null", *arguments, env=self.env).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def lines(self):
        return self.screen().rstrip("\n").split("\n")

    def shows(self, *texts):
        """The screen, once it shows all of the texts."""
        return until(lambda: all(text in (screen := self.screen()) for text in texts) and screen, lambda: f"{texts} on\n{self.screen()}")

    def whole(self, rows=24):
        """The lines of a screen that is drawn, from its title to its last line."""
        drawn = lambda lines: len(lines) == rows and lines[0].startswith("weir top")
        return until(lambda: drawn(lines := self.lines()) and lines, lambda: f"{rows} lines on\n{self.screen()}")

    def child(self):
        """The command in the shell."""
        shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
        inside = pathlib.Path(f"/proc/{shell}/task/{shell}/children")
        children = until(lambda: inside.read_text().split(), "the command")
        return int(children[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")


@pytest.fixture(scope="module")
def growing(tmp_path_factory):
    """A job that takes more and more."""
    folder = tmp_path_factory.mktemp("growing")
    with job(folder, WEIR_CAP="1GiB") as talk:
        assert talk.say("take 64") == "yes" and talk.say("grow 1") == "yes"
        yield SimpleNamespace(folder=folder, pid=talk.pid, talk=talk)


@pytest.fixture
def terminal(growing):
    with Terminal(f"{WEIR} top --interval 0.3", growing.folder) as terminal:
        terminal.whole()
        yield terminal


def test_screen_of_80_by_24_ends_with_the_keys(terminal):
    lines = terminal.lines()
    assert len(lines) == 24 and "q leave" in lines[-1] and "speed" in lines[-1]


def test_screen_has_the_job_its_bar_and_its_cap(terminal, growing):
    screen = terminal.screen()
    assert str(growing.pid) in screen and "█" in screen and "1.00 GiB" in screen and "cap 1.00 GiB" in screen


def test_no_line_is_longer_than_the_terminal(terminal):
    assert [line for line in terminal.lines() if len(line) > 80] == []


def test_growth_and_its_end_are_shown(terminal):
    assert terminal.shows("full in")


def test_p_holds_the_picture(terminal):
    terminal.tmux("send-keys", "p")
    assert terminal.shows("PAUSED")


def test_s_sorts_by_change(terminal):
    terminal.tmux("send-keys", "s")
    assert terminal.shows("by size")


def test_a_shows_those_that_ended(terminal):
    terminal.tmux("send-keys", "a")
    assert terminal.shows("living only")


def test_the_screen_survives_any_size_of_window(terminal):
    for columns, rows in ((40, 10), (20, 3), (160, 50)):
        terminal.tmux("resize-window", "-x", columns, "-y", rows)
        assert all(len(line) <= columns for line in terminal.whole(rows))
    assert terminal.shows("WHO HOLDS IT")


def test_q_leaves_the_terminal_as_before(terminal):
    terminal.tmux("send-keys", "q")
    assert "-icanon" not in terminal.shows("left with 0", "icanon")


def test_the_job_goes_on(terminal, growing):
    terminal.tmux("send-keys", "q")
    terminal.shows("left with 0")
    assert growing.talk.say("take 1") == "yes"


@pytest.fixture
def colourless(growing):
    with Terminal(f"{WEIR} top --interval 60", growing.folder, NO_COLOR="1") as terminal:
        terminal.whole()
        yield terminal


def test_the_screen_is_the_same_without_colours(colourless, growing):
    assert colourless.shows(str(growing.pid))


def test_a_signal_leaves_the_terminal_as_before(colourless):
    os.kill(colourless.child(), signal.SIGTERM)
    assert "-icanon" not in colourless.shows("left with", "icanon")


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A job whose names are made to do harm in a terminal, in JSON and in Prometheus' format."""
    folder, name = tmp_path_factory.mktemp("evil"), 'a"b\\c\x1b[2J\x1b]0;t\x07\nX 1\u202e'
    with actor(folder) as talk:
        talk.do(do="device", number=0, total=8 * GIB, name=name)
        talk.do(do="cap", number=0, bytes=2 * GIB)
        package = ["/x/site-packages/k.py", "call", 3]
        talk.do(do="alloc", address=1 << 40, bytes=GIB, op=name, lines=[package, [f"/home/{name}.py", name, 118]])
        talk.do(do="alloc", address=2 << 40, bytes=GIB // 2, op="StatefulPartitionedCall/conv/Conv2D", lines=[package, ["/home/u/train.py", "step", 131]])
        talk.do(do="oom", requested=7 * GIB, op=name, lines=[["/home/u/train.py", "step", 131]])
        yield folder


@pytest.mark.parametrize("how", ["top --once", "top --json", "metrics --once"])
def test_no_control_character_is_printed(evil, how):
    out = look(*how.split(), folder=evil).stdout
    assert out and not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", out), repr(out)


def test_the_users_own_line_is_named_not_the_packages(evil):
    holder = top(evil)["jobs"][0]["gpus"][0]["holders"][1]
    assert (holder["line"], holder["op"]) == ("train.py:131 in step", "conv/Conv2D")


def test_prometheus_gets_the_name_back(evil):
    families = text_string_to_metric_families(look("metrics", "--once", folder=evil).stdout)
    names = [sample.labels["op"] for family in families for sample in family.samples if sample.name == "weir_holder_bytes"]
    assert any('a"b\\c' in name for name in names), names


def test_damaged_files_are_listed_and_skipped(tmp_path):
    with actor(tmp_path) as talk:
        talk.do(do="device", number=0, total=8 * GIB, name="v")
        (tmp_path / "1-1.weir").write_bytes(b"WEIRJNL\n" + os.urandom(9000))
        (tmp_path / "1-2.weir").write_bytes(b"")
        os.mkfifo(tmp_path / "1-3.weir")
        seen = top(tmp_path, "--all")
    assert len(seen["unreadable"]) == 2 and len(seen["jobs"]) == 1, seen


def test_a_region_counts_what_no_tensor_of_it_has(tmp_path):
    with actor(tmp_path) as talk:
        talk.do(do="device", number=0, total=8 * GIB, name="v")
        talk.do(do="alloc", address=1 << 40, bytes=GIB, op="BFC")
        talk.do(do="alloc", address=(1 << 40) + MIB, bytes=300 * MIB, **{"class": "tensor"}, op="conv")
        gpu = top(tmp_path)["jobs"][0]["gpus"][0]
    assert {holder["op"]: holder["bytes"] for holder in gpu["holders"]} == {"BFC": GIB - 300 * MIB, "conv": 300 * MIB}
    assert gpu["live"] == GIB


def test_a_job_that_exits_has_ended(tmp_path):
    with actor(tmp_path) as talk:
        talk.do(do="device", number=0, total=8 * GIB, name="v")
        talk.send('{"do":"exit"}')
        talk.process.wait(60)
        assert [job["life"] for job in top(tmp_path, "--all")["jobs"]] == ["ended"]


def test_root_sees_the_jobs_of_other_users(tmp_path):
    """Where neither --dir nor WEIR_DIR names a folder. For others, the same question finds their own folder only."""
    shared = tmp_path / "journals"
    shared.mkdir()
    with job(shared) as talk:
        assert talk.say("take 10") == "yes"
        env = environment(**{**surroundings(tmp_path), "WEIR_DIR": "", "XDG_STATE_HOME": "", "HOME": tmp_path})
        pids = {job["pid"] for job in json.loads(run(WEIR, "top", "--json", env=env).stdout)["jobs"]}
    assert (talk.pid in pids) == (os.geteuid() == 0)


@pytest.fixture(scope="module")
def narrow(growing):
    with Terminal(f"{WEIR} top --interval 60", growing.folder) as terminal:
        terminal.whole()
        terminal.tmux("resize-window", "-x", "40", "-y", "20")
        terminal.shows("? help")
        yield terminal


def test_forty_columns_have_what_matters(narrow, growing):
    lines = narrow.whole(20)
    row = next(line for line in lines if line.startswith(str(growing.pid)))
    assert "runs" in row and re.search(r"\d+(\.\d+)? [MG]iB", row) and "TAKEN" in lines[1], lines
    assert any("cap 1.00 GiB" in line for line in lines) and "q leave" in lines[-1] and "? help" in lines[-1]


def test_question_mark_is_help_and_any_key_goes_back(narrow):
    narrow.tmux("send-keys", "?")
    assert narrow.shows("select a job", "sort holders", "any key goes back")
    narrow.tmux("send-keys", "q")
    assert narrow.shows("? help", "WHO HOLDS IT")


def test_a_terminal_without_utf8_gets_ascii(growing):
    with Terminal(f"{WEIR} top --interval 60", growing.folder, LC_ALL="C") as terminal:
        screen = "\n".join(terminal.whole())
        assert screen.isascii() and str(growing.pid) in screen and "#" in screen
