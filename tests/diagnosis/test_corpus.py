"""Programs that run out of memory, with the truth beside them, against what `weir report` says of them.

README.md describes the first lines of a program. Each program runs once a mode on the device on which it fails. Its report must have
the cause, the line and the roles; then what the report advises first is done, and the program must end well. A table with totals is
printed at the end and written to target/diagnosis.tsv.
"""
import collections
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from conftest import MIB, ROOT, TENSORFLOW_RELEASES, WEIR, environment, run, tensorflow, tensorflow_marks, weir

TABLE = ROOT / "target/diagnosis.tsv"
# Where the runs of programs are kept for later: after a change of the report's rules only what these change runs again. Empty it when
# anything else changes.
KEPT = os.environ.get("WEIR_DIAGNOSIS_KEPT")
OLDER = ("2.17.1", "3.10")
# In a default run: one for each of the most frequent causes. What the report says beside the cause is in the long part only.
BRIEF = ("predictions_collected", "dataset_as_constant", "images_not_resized")
# The truth's words, and the report's.
CAUSES = {"device full": "device_full", "one request too large": "request_too_large", "growth": "growth", "own limit": "tensorflow_limit"}
ROLES = {"optimizer state": "optimizer", "input": "inputs", "models": "parameters"}
SUMS = ("parameters", "optimizer state", "gradients", "activations", "input")
# Kinds of remedies that change a program, and the kinds of cures that do what they say. Any other kind: the cure of the same name.
CHANGES = {"stop_growth": ("reference", "host", "bound", "reuse", "retrace"), "smaller_batch": ("batch",), "data_on_host": ("host",),
           "in_parts": ("batch", "outputs"), "eval_batch": ("eval_batch", "batch"), "outlier": ("outlier", "length", "size"),
           "fewer_rows": ("nodes", "points"), "rows_only": ("penalty",), "fewer_turns": ("turns", "length"), "smaller_input": ("size", "length", "patch"), "free_models": ("free_models", "reference", "reuse"), "smaller_layer": ("layer", "width", "bottleneck"),
           "smaller_model": ("width", "bottleneck", "members", "layer")}
# Kinds that advise a size, which must be enough unless it is called a lower bound.
SIZES = ("device", "cap", "memory_limit")


class Case(NamedTuple):
    """A program and the mode in which it runs: weir's pool, TensorFlow's own allocator (keep), or an older TensorFlow."""
    path: pathlib.Path
    mode: str = "pool"

    def __str__(self):
        return self.path.stem if self.mode == "pool" else f"{self.path.stem}-{self.mode}"

    @property
    def release(self):
        return OLDER if self.mode == "older" else TENSORFLOW_RELEASES[0]


@functools.cache
def truth(case):
    """The first lines of a program, with those of the mode; its cures and the lines to blame."""
    text = case.path.read_text()
    lines = dict(re.findall(r"^# ([a-z ]+): (.*)$", text.partition("\nimport ")[0], re.MULTILINE))
    facts = {name: fact for name, fact in lines.items() if not name.startswith("cure ")}
    facts |= {name.removeprefix(f"{case.mode} "): fact for name, fact in facts.items() if name.startswith(f"{case.mode} ")}
    if case.mode == "keep":
        facts["env"] = f"{facts.get('env', '')} WEIR_TF_ALLOCATOR=keep"
    cures = [(kind, *change.split(" => ")) for kind, change in re.findall(r"^# cure (\w+): (.*)$", text, re.MULTILINE)]
    culprits = [f"{case.path.name}:{number}" for number, line in enumerate(text.splitlines(), 1) if line.endswith("# <- culprit")]
    return SimpleNamespace(facts=facts, cures=cures, culprits=culprits, text=text, causes=[CAUSES[cause] for cause in facts["cause"].split(" or ")])


def corpus():
    for path in sorted((ROOT / "tests/diagnosis/corpus").glob("*.py")):
        yield Case(path)
        facts = truth(Case(path)).facts
        yield from [Case(path, "keep")] * ("keep gpu" in facts)
        yield from [Case(path, "older")] * ("older" in facts)


CORPUS = list(corpus())


def changed(text, old, new):
    """The program with a cure. The truth in its first lines quotes the same words and stays."""
    head, mark, body = text.partition("\nimport ")
    assert old in body, f"nothing to cure: no {old!r}"
    return head + mark + body.replace(old, new)


def ran(folder, case, text=None, gpu=None, variables=""):
    """A program under weir on a virtual GPU: whether it ended well, and the folder of its journals. With WEIR_DIAGNOSIS_KEPT, it
    has not run again if the same program has run on the same device before."""
    facts, program = truth(case).facts, text or truth(case).text
    given = dict(item.split("=", 1) for item in f"{facts.get('env', '')} {variables}".split())
    given = {"VGPU_DEVICES": facts.get("devices", 1), **given}
    gpu = gpu or facts["gpu"]
    if KEPT:
        same = json.dumps([program, case.release, gpu, given], sort_keys=True)
        folder = pathlib.Path(KEPT) / f"{case}-{hashlib.sha256(same.encode()).hexdigest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
    journals, ended = folder / "weir", folder / "ended"
    if not ended.exists():
        python, _ = tensorflow(case.release)
        shutil.rmtree(journals, ignore_errors=True)
        journals.mkdir(mode=0o700)
        (folder / case.path.name).write_text(program)
        env = environment(**{**given, "WEIR_DIR": journals, "VGPU_STRICT": "on", "TF_CPP_MIN_LOG_LEVEL": "3"})
        done = run(WEIR, "run", "--vgpu", gpu, "--", python, folder / case.path.name, env=env, code=None, timeout=900)
        ended.write_text(str(done.returncode))
    return ended.read_text() == "0", journals


@functools.cache
def reported(folder, case, rerun=False):
    """A program on the device on which it fails: whether it ended well, its report, and the report of its rerun where that is
    wanted. Journals are large; unless they are kept for later runs, none is left."""
    well, journals = ran(folder, case)
    largest = max(journals.glob("*.weir"), key=lambda journal: journal.stat().st_size)

    def report(*flags):
        return json.loads(weir("report", "--json", *flags, largest, env=environment(WEIR_DIR=journals), code=None, timeout=900, quiet=True).stdout)

    reports = SimpleNamespace(well=well, report=report(), rerun=report("--rerun") if rerun else None)
    if not KEPT:
        shutil.rmtree(journals)
    return reports


def ends_well(folder, case, text=None, gpu=None, variables=""):
    """Whether a program ends well; no journal of it is left."""
    well, journals = ran(folder, case, text, gpu, variables)
    shutil.rmtree(journals, ignore_errors=True)
    return well


def divided(old, parts):
    """`BATCH = 8` in two parts is `BATCH = 4`."""
    return re.sub(r"\d+$", lambda size: str(max(1, int(size[0]) // parts)), old)


def applied(wants, remedy):
    """What the remedy makes of the program: its text, device and variables. None if the truth has no cure of that kind."""
    text, gpu = wants.text, wants.facts["gpu"]
    kind, value = remedy["kind"], remedy.get("value")
    match kind:
        case "device":
            return text, f"{-(-value // MIB)}MiB", ""
        case "cap":
            return text, gpu, f"WEIR_CAP={value}"
        case "environment":
            return text, gpu, value
        case "memory_limit" if "memory_limit=" in text:
            return re.sub(r"memory_limit=\d+(?=\))", f"memory_limit={value}", text), gpu, ""
        case "memory_limit" if "memory_fraction=" in text:
            # The same limit, in the words of a session's options.
            number, unit = re.fullmatch(r"(\d+)(MiB|GiB)", gpu).groups()
            share = value / (int(number) * {"MiB": 1, "GiB": 1024}[unit])
            return re.sub(r"memory_fraction=[\d.]+(?=\))", f"memory_fraction={share:.6f}", text), gpu, ""
        case "memory_limit":
            limit = f"tf.config.LogicalDeviceConfiguration(memory_limit={value})"
            setting = f"tf.config.set_logical_device_configuration(tf.config.list_physical_devices('GPU')[0], [{limit}])"
            return text.replace("\nimport ", f"\nimport tensorflow as tf; {setting}\nimport ", 1), gpu, ""
        case "stop_growth" if not any(line in value for line in wants.culprits):
            return None
    for wanted in CHANGES.get(kind, (kind,)):
        for cure, old, new in wants.cures:
            if cure == wanted:
                # A number of parts is advised: these, and not what the truth knows to suffice.
                counts = isinstance(value, int) and re.search(r"\d$", old)
                return changed(text, old, divided(old, value) if counts else new), gpu, ""
    return None


def spelled(remedy):
    return f"{remedy['kind']} {remedy.get('value', '')}".strip()


def cases(chosen=CORPUS, brief=BRIEF):
    return [pytest.param(case, id=str(case), marks=tensorflow_marks(case.release, long=str(case) not in brief)) for case in chosen]


@pytest.fixture(scope="module")
def job(request, tmp_path_factory):
    """Runs a program on the device on which it fails; once, whatever needs it. Run again by the report only where a test of that
    is selected."""
    reruns = {item.callspec.params["case"] for item in request.session.items if item.originalname == "test_rerun"}

    @functools.cache
    def of(case):
        return reported(tmp_path_factory.mktemp("job"), case, rerun=case in reruns)
    return of


@pytest.fixture(scope="module")
def cured(tmp_path_factory):
    """Whether the program ends well with a remedy; two reports that advise the same share a run."""
    endings = {}

    def of(case, remedy):
        change = applied(truth(case), remedy)
        if change is None:
            return False
        if (case, change) not in endings:
            endings[case, change] = ends_well(tmp_path_factory.mktemp("cured"), case, *change)
        return endings[case, change]
    return of


COLUMNS = ("cause", "line", "roles", "also", "first remedy", "any remedy", "sizes", "after rerun")


@pytest.fixture(scope="module")
def table(request):
    """Per program and column whether the report was right, and what it said; per kind of remedy how many cured."""
    rows, kinds = collections.defaultdict(dict), collections.defaultdict(dict)
    yield SimpleNamespace(rows=rows, kinds=kinds)
    lines = [["program", *COLUMNS, "what was wrong"]]
    for name, row in sorted(rows.items()):
        verdicts = ["-" if column not in row else "yes" if row[column][0] else "NO" for column in COLUMNS]
        lines.append([name, *verdicts, "; ".join(f"{column}: {said}" for column, (right, said) in row.items() if not right)])
    for mode in ("pool", "keep", "older"):
        chosen = [row for name, row in rows.items() if mode == (name.rpartition("-")[2] if "-" in name else "pool")]
        totals = [[row[column][0] for row in chosen if column in row] for column in COLUMNS]
        if chosen:
            lines.append([f"total, {mode}", *(f"{sum(right)} of {len(right)}" if right else "-" for right in totals), ""])
    for kind, seen in sorted(kinds.items()):
        lines.append([f"by kind: {kind}", *[""] * COLUMNS.index("first remedy"), f"{sum(seen.values())} of {len(seen)}", *[""] * 4])
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("".join("\t".join(line) + "\n" for line in lines))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print()
        for name, *verdicts, wrong in lines:
            print(f"{name:36}" + "".join(f"{verdict:>14}" for verdict in verdicts) + f"  {wrong[:160]}")


@pytest.fixture
def check(table):
    """Notes whether the report was right, then asserts it."""
    def of(case, column, right, said):
        table.rows[str(case)][column] = (bool(right), str(said).replace("\t", " ").replace("\n", " "))
        assert right, said
    return of


@pytest.mark.parametrize("case", cases())
def test_cause(job, check, case):
    assert not job(case).well, f"does not fail on {truth(case).facts['gpu']}"
    causes = [finding["cause"] for finding in job(case).report["findings"]]
    check(case, "cause", causes and causes[0] in truth(case).causes, f"{causes} instead of {truth(case).facts['cause']}")


@pytest.mark.parametrize("case", cases())
def test_line(job, check, case):
    """A line to blame is among those that requested, hold or grow; so is the layer where the program calls Keras' fit alone."""
    report, wants = job(case).report, truth(case)
    request = report["request"] or {}
    named = [request.get("python") or "", *(holder["python"] for holder in report["holders"]), json.dumps(report["growth"])]
    right = any(re.search(re.escape(line) + r"\b", name) for line in wants.culprits for name in named)
    operations = [request.get("op") or "", *(holder["op"] for holder in report["holders"][:3])]
    right = right and any(wants.facts.get("layer", "") in operation for operation in operations)
    check(case, "line", right, f"no {wants.culprits} {wants.facts.get('layer', '')} in {named[:4]} {operations}")


def has_roles(case):
    """One request that is too large is refused before its role is live."""
    facts = truth(case).facts
    return any(name in facts for name in SUMS) or ("full of" in facts and facts["cause"] != "one request too large")


@pytest.mark.parametrize("case", cases(filter(has_roles, CORPUS)))
def test_roles(job, check, case):
    """The largest role is the true one, and the sums are those of the model, within 5 %."""
    facts = truth(case).facts
    shares = {share["role"]: share["bytes"] for share in job(case).report["roles"]}
    wrong = []
    full = facts.get("full of")
    if full and max(shares, key=shares.get, default="") not in [ROLES.get(role, role) for role in full.split(" or ")]:
        wrong.append(f"full of {full}")
    for name in SUMS:
        if name in facts:
            size = float(facts[name].removesuffix("MiB")) * MIB
            if abs(shares.get(ROLES.get(name, name), 0) - size) > 0.05 * size:
                wrong.append(f"{name} {facts[name]}")
    said = ", ".join(f"{role} {size / MIB:.1f}MiB" for role, size in shares.items())
    check(case, "roles", not wrong, f"{said} instead of {', '.join(wrong)}")


@pytest.mark.parametrize("case", cases([case for case in CORPUS if {"also", "dtype", "says"} & truth(case).facts.keys()], brief=()))
def test_also(job, check, case):
    """A second cause, the type that makes it large, the words that explain it."""
    facts, report = truth(case).facts, job(case).report
    words = " ".join([*(f"{finding['rule']} {finding['evidence']}" for finding in report["findings"]),
                      *(remedy["text"] for remedy in report["remedies"])])
    wrong = [f"no {facts[name]}" for name in ("dtype", "says") if name in facts and facts[name] not in words]
    if "also" in facts and CAUSES[facts["also"]] not in [finding["cause"] for finding in report["findings"]]:
        wrong.append(f"not also {facts['also']}")
    check(case, "also", not wrong, ", ".join(wrong))


@pytest.mark.parametrize("case", cases())
def test_remedies(job, cured, check, table, case):
    """The program ends well once it does what is advised first, and on every size that is said to be enough. Where the first remedy
    fails, the next ones are tried for the table."""
    remedies, kinds = job(case).report["remedies"], [kind for kind, *_ in truth(case).cures]
    claims = [remedy for remedy in remedies if remedy["kind"] in SIZES and remedy["check"] != "estimated"]
    cures = False
    for number, remedy in enumerate(remedies):
        if not cures or remedy in claims:
            helps = table.kinds[remedy["kind"]][case, number] = cured(case, remedy)
            cures = cures or helps
    row = table.rows[str(case)]
    row["any remedy"] = (cures, [spelled(remedy) for remedy in remedies])
    if claims:
        row["sizes"] = (all(cured(case, remedy) for remedy in claims), [spelled(remedy) for remedy in claims])
    check(case, "first remedy", remedies and cured(case, remedies[0]), f"{spelled(remedies[0]) if remedies else 'none'}, cures are {kinds}")
    assert row.get("sizes", (True,))[0], f"not enough: {row['sizes'][1]}"


@pytest.mark.parametrize("case", cases([case for case in CORPUS if case.mode == "pool"], brief=()))
def test_rerun(job, cured, check, case):
    """As the first remedy, of the report after the job was run again with enough room."""
    report = job(case).rerun
    remedies = report["remedies"]
    check(case, "after rerun", remedies and cured(case, remedies[0]), spelled(remedies[0]) if remedies else "none")


def endings():
    """The device that is enough, and each cure on the one that is not. In another mode than the pool's, the first cure."""
    for case in CORPUS:
        wants = truth(case)
        if "enough" in wants.facts and case.mode == "pool":
            yield pytest.param(case, None, id=f"{case}-enough", marks=tensorflow_marks())
        for cure in wants.cures if case.mode == "pool" else wants.cures[:1]:
            yield pytest.param(case, cure, id=f"{case}-{cure[0]}", marks=tensorflow_marks(case.release))


@pytest.mark.parametrize("case, cure", list(endings()))
def test_the_truth_holds(case, cure, tmp_path):
    wants = truth(case)
    text = changed(wants.text, *cure[1:]) if cure else wants.text
    assert ends_well(tmp_path, case, text, wants.facts["gpu"] if cure else wants.facts["enough"])
