"""Jobs of examples/oom under `weir run` on the virtual GPU: each must end in its verdict, with the right file and line.

What a job needs and what weir must say of it stand in its first lines: `gpu` is the device's memory, `env` the variables,
`verdict` the cause that the report must put first, `remedy` words that one of its remedies must have, `beside` a job that
shares the device, `cures` the job whose cure it is. A cure must end well on the same device. The line that is to blame ends
in `# <- culprit` and must be named: among those who requested or hold, and for host memory by the verdict itself. Every remedy
must have been replayed. `whole` is a device on which the job itself ends, without a cap: what it needs there is compared
with what its cures need, and must be more.
"""
import functools
import json
import re
import subprocess
from types import SimpleNamespace

import pytest
from conftest import ROOT, STAGE, WEIR, environment, run, tensorflow, tensorflow_marks, weir

# In a default run: three jobs with their cures.
BRIEF = ("kept_in_list", "reserved_idle", "float64")


def header(path):
    return dict(re.findall(r"^# (gpu|env|verdict|remedy|cures|beside|whole): (.*)$", path.read_text(), re.MULTILINE))


EXAMPLES = [path for path in sorted((ROOT / "examples/oom").glob("*.py")) if "gpu" in header(path)]


def cured(cure):
    """The job whose cure it is."""
    return cure.with_name(header(cure).get("cures", "") + ".py")


def comparable(cure):
    wants = header(cured(cure)) if cured(cure) in EXAMPLES else {}
    return "whole" in wants or wants.get("verdict") == "host_memory"


def cases(paths):
    return [pytest.param(path, id=path.stem, marks=tensorflow_marks(long=not any(part in path.name for part in BRIEF))) for path in paths]


def variables(folder, wants):
    wanted = dict(item.split("=", 1) for item in wants.get("env", "").split())
    return {**wanted, "WEIR_DIR": folder, "VGPU_STRICT": "on", "TF_CPP_MIN_LOG_LEVEL": "3"}


def played(path, folder, wants):
    """The job under weir: what became of it, its report and the screen of that."""
    python, _ = tensorflow()
    env = variables(folder, wants)
    beside = None
    if "beside" in wants:
        env["VGPU_SHARED"] = folder / "device"
        other = environment(**env, VGPU_MEM=wants["gpu"], LD_LIBRARY_PATH=STAGE / "vgpu")
        beside = subprocess.Popen([python, path.with_name(wants["beside"])], env=other, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        assert beside.stdout.readline(), "the other process did not start"
    try:
        done = run(WEIR, "run", "--vgpu", wants["gpu"], "--", python, path, env=environment(**env), code=None, timeout=600)
    finally:
        if beside:
            beside.communicate(timeout=120)
    journals = list(folder.glob("*.weir"))
    assert len(journals) == 1
    plain = environment(**{**env, "NO_COLOR": "1", "COLUMNS": "80"})
    report = json.loads(weir("report", "--json", journals[0], env=plain, code=None, timeout=300).stdout)
    screen = weir("report", journals[0], env=plain, code=None, timeout=300).stdout
    return SimpleNamespace(code=done.returncode, report=report, screen=screen)


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """Plays an example; once, whatever needs it."""
    return functools.cache(lambda path: played(path, tmp_path_factory.mktemp("weir"), header(path)))


@pytest.mark.parametrize("path", cases(EXAMPLES))
def test_numbers_of_the_report_add_up(play, path):
    """The parts make the device, TensorFlow's memory and what is beside it make what is live, roles make the holders."""
    report = play(path).report
    parts, view = dict(report["driver"]["parts"]), report["tensors"]
    assert sum(parts.values()) == report["driver"]["total"]
    if view:
        assert view["reserved"] == view["used"] + view["idle"]
        assert parts["live"] == view["reserved"] + view["beside"]
    assert report["rest"] + sum(holder["bytes"] for holder in report["holders"]) == sum(share["bytes"] for share in report["roles"])
    assert all(holder["rule"] for holder in report["holders"]), "a role without a rule"


@pytest.mark.parametrize("path", cases(EXAMPLES))
def test_the_report_is_read_on_one_screen(play, path):
    lines = play(path).screen.splitlines()
    assert len(lines) <= 30 and [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("path", cases(path for path in EXAMPLES if "verdict" not in header(path)))
def test_a_cure_ends_well(play, path):
    assert play(path).code == 0


@pytest.mark.parametrize("path", cases(path for path in EXAMPLES if "verdict" in header(path)))
def test_the_verdict_its_remedies_and_the_line_to_blame(play, path):
    wants, job = header(path), play(path)
    report = job.report
    assert job.code != 0, "the job did not fail"
    assert [finding["cause"] for finding in report["findings"]][:1] == [wants["verdict"]]
    assert report["remedies"] and all("not replayed" not in remedy["how"] for remedy in report["remedies"]), report["remedies"]
    assert any(wants.get("remedy", "") in remedy["text"] for remedy in report["remedies"]), (wants["remedy"], report["remedies"])
    culprit = next(number for number, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# <- culprit"))
    if wants["verdict"] == "host_memory":
        named = [report["findings"][0]["evidence"]]
    else:
        named = [(report.get("request") or {}).get("python", ""), *(holder["python"] for holder in report["holders"]), json.dumps(report.get("growth", ""))]
    assert any(f"{path.name}:{culprit}" in line for line in named), (culprit, named)


@pytest.fixture(scope="module")
def savings(request):
    """Rows of (job, cure, measure, bytes before, bytes after), printed at the end."""
    rows = []
    yield rows
    writer, mib = request.config.get_terminal_writer(), lambda size: f"{size / 2**20:.1f} MiB"
    for job, cure, what, before, after in rows:
        writer.line(f"\n{job} needs {mib(before)}, {cure} {mib(after)} ({what}): {100 - 100 * after / before:.0f} % saved")


@pytest.mark.parametrize("cure", cases(filter(comparable, EXAMPLES)))
def test_a_cure_needs_less(play, cure, weir_dir, savings):
    """What a job needs on a device large enough, against what its cure needs."""
    path = cured(cure)
    wants = header(path)
    if wants["verdict"] == "host_memory":
        what = "host memory at its end"
        before, after = (play(job).report["host"]["resident"] for job in (path, cure))
    else:
        wants = {**wants, "gpu": wants["whole"], "env": " ".join(item for item in wants.get("env", "").split() if not item.startswith("WEIR_CAP="))}
        whole = played(path, weir_dir, wants)
        assert whole.code == 0, f"does not end on {wants['gpu']}"
        what, before, after = "peak", whole.report["peak"], play(cure).report["peak"]
    savings.append((path.name, cure.name, what, before, after))
    assert after < before
