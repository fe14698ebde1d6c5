"""Programs that run out of memory, with the truth beside them, against what `weir report` says of them.

README.md describes the first lines of a program. Each program runs once on the device on which it fails. Its report must have the
cause, the line and the roles; then what the report advises first is done, and the program must end well. A table with totals is
printed at the end and written to target/diagnosis.tsv.
"""
import collections
import functools
import json
import re
import shutil
from types import SimpleNamespace

import pytest
from conftest import MIB, ROOT, WEIR, environment, run, tensorflow, tensorflow_marks, weir

CORPUS = sorted((ROOT / "tests/diagnosis/corpus").glob("*.py"))
TABLE = ROOT / "target/diagnosis.tsv"
# In a default run: one for each of the most frequent causes. What the report says beside the cause is in the long part only.
BRIEF = ("predictions_collected", "dataset_as_constant", "images_not_resized")
# The truth's words, and the report's.
CAUSES = {"device full": "device_full", "one request too large": "request_too_large", "growth": "growth", "own limit": "tensorflow_limit"}
ROLES = {"optimizer state": "optimizer", "input": "inputs", "models": "parameters"}
# Kinds of remedies that change a program, and the kinds of cures that do what they say.
CHANGES = {"stop_growth": ("reference", "host"), "smaller_batch": ("batch",), "data_on_host": ("host",), "in_parts": ("batch", "outputs"),
           "float32": ("float32",), "mixed_precision": ("mixed_precision",)}
# Kinds that advise a size, which must be enough unless it is called a lower bound.
SIZES = ("device", "cap", "memory_limit")


def truth(path):
    """The first lines of a program, its cures and its culprit."""
    text = path.read_text()
    facts = dict(re.findall(r"^# (gpu|enough|env|devices|cause|also|full of|parameters|dtype|says): (.*)$", text, re.MULTILINE))
    cures = [(kind, *change.split(" => ")) for kind, change in re.findall(r"^# cure (\w+): (.*)$", text, re.MULTILINE)]
    culprit = next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# <- culprit"))
    return SimpleNamespace(facts=facts, cures=cures, line=f"{path.name}:{culprit}", text=text)


def changed(text, old, new):
    """The program with a cure. The truth in its first lines quotes the same words and stays."""
    head, mark, body = text.partition("\nimport ")
    assert old in body, f"nothing to cure: no {old!r}"
    return head + mark + body.replace(old, new)


def played(folder, name, text, gpu, facts, variables=""):
    """A program under weir on a virtual GPU: whether it ended well, and its report. Journals are large; none is left."""
    python, _ = tensorflow()
    journals = folder / "weir"
    journals.mkdir(mode=0o700)
    program = folder / name
    program.write_text(text)
    given = dict(item.split("=", 1) for item in f"{facts.get('env', '')} {variables}".split())
    env = environment(**{"VGPU_DEVICES": facts.get("devices", 1), **given, "WEIR_DIR": journals, "VGPU_STRICT": "on", "TF_CPP_MIN_LOG_LEVEL": "3"})
    done = run(WEIR, "run", "--vgpu", gpu, "--", python, program, env=env, code=None, timeout=900)
    largest = max(journals.glob("*.weir"), key=lambda journal: journal.stat().st_size)
    report = json.loads(weir("report", "--json", largest, env=environment(WEIR_DIR=journals), code=None, timeout=300, quiet=True).stdout)
    shutil.rmtree(journals)
    return SimpleNamespace(well=done.returncode == 0, report=report)


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
        case "memory_limit":
            limit = f"tf.config.LogicalDeviceConfiguration(memory_limit={value})"
            setting = f"tf.config.set_logical_device_configuration(tf.config.list_physical_devices('GPU')[0], [{limit}])"
            return text.replace("import tensorflow as tf\n", f"import tensorflow as tf; {setting}\n", 1), gpu, ""
        case "stop_growth" if wants.line not in value:
            return None
    for wanted in CHANGES.get(kind, (kind,)):
        for cure, old, new in wants.cures:
            if cure == wanted:
                # A number of parts is advised: these, and not what the truth knows to suffice.
                return changed(text, old, divided(old, value) if isinstance(value, int) else new), gpu, ""
    return None


def spelled(remedy):
    return f"{remedy['kind']} {remedy.get('value', '')}".strip()


def cases(paths=CORPUS, brief=BRIEF):
    return [pytest.param(path, id=path.stem, marks=tensorflow_marks(long=path.stem not in brief)) for path in paths]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Runs a program on the device on which it fails; once, whatever asks for it."""
    @functools.cache
    def of(path):
        wants = truth(path)
        done = played(tmp_path_factory.mktemp("job"), path.name, wants.text, wants.facts["gpu"], wants.facts)
        return SimpleNamespace(failed=not done.well, report=done.report, wants=wants)
    return of


@pytest.fixture(scope="module")
def cured(job, tmp_path_factory):
    """Whether the program ends well with the remedy of that number; None if there is no such remedy."""
    @functools.cache
    def of(path, number):
        wants, remedies = job(path).wants, job(path).report["remedies"]
        if number >= len(remedies):
            return None
        change = applied(wants, remedies[number])
        if change is None:
            return False
        text, gpu, variables = change
        return played(tmp_path_factory.mktemp("cured"), path.name, text, gpu, wants.facts, variables).well
    return of


COLUMNS = ("cause", "line", "roles", "also", "first remedy", "any remedy", "sizes")


@pytest.fixture(scope="module")
def table(request):
    """Per program and column whether the report was right, and what it said; per kind of remedy how many cured."""
    rows, kinds = collections.defaultdict(dict), collections.defaultdict(dict)
    yield SimpleNamespace(rows=rows, kinds=kinds)
    lines = [["program", *COLUMNS, "what was wrong"]]
    for name, row in sorted(rows.items()):
        verdicts = ["-" if column not in row else "yes" if row[column][0] else "NO" for column in COLUMNS]
        lines.append([name, *verdicts, "; ".join(f"{column}: {said}" for column, (right, said) in row.items() if not right)])
    totals = [[row[column][0] for row in rows.values() if column in row] for column in COLUMNS]
    lines.append(["total", *(f"{sum(right)} of {len(right)}" for right in totals), ""])
    for kind, seen in sorted(kinds.items()):
        lines.append([f"by kind: {kind}", *[""] * COLUMNS.index("first remedy"), f"{sum(seen.values())} of {len(seen)}", "", "", ""])
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("".join("\t".join(line) + "\n" for line in lines))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print()
        for name, *verdicts, wrong in lines:
            print(f"{name:32}" + "".join(f"{verdict:>14}" for verdict in verdicts) + f"  {wrong[:160]}")


@pytest.fixture
def check(table):
    """Notes whether the report was right, then asserts it."""
    def of(path, column, right, said):
        table.rows[path.stem][column] = (bool(right), str(said).replace("\t", " ").replace("\n", " "))
        assert right, said
    return of


@pytest.mark.parametrize("path", cases())
def test_cause(job, check, path):
    it = job(path)
    assert it.failed, f"does not fail on {it.wants.facts['gpu']}"
    causes = [finding["cause"] for finding in it.report["findings"]]
    check(path, "cause", causes[:1] == [CAUSES[it.wants.facts["cause"]]], f"{causes} instead of {it.wants.facts['cause']}")


@pytest.mark.parametrize("path", cases())
def test_line(job, check, path):
    """The line to blame is among those that requested, hold or grow."""
    report, line = job(path).report, job(path).wants.line
    named = [(report["request"] or {}).get("python") or "", *(holder["python"] for holder in report["holders"]), json.dumps(report["growth"])]
    check(path, "line", any(re.search(re.escape(line) + r"\b", name) for name in named), f"no {line} in {named[:4]}")


def has_roles(path):
    """One request that is too large is refused before its role is live."""
    facts = truth(path).facts
    return "parameters" in facts or ("full of" in facts and facts["cause"] != "one request too large")


@pytest.mark.parametrize("path", cases(filter(has_roles, CORPUS)))
def test_roles(job, check, path):
    """The largest role is the true one, and the parameters are those of the model."""
    facts = job(path).wants.facts
    shares = {share["role"]: share["bytes"] for share in job(path).report["roles"]}
    said = {role: f"{size / MIB:.1f} MiB" for role, size in shares.items()}
    right = True
    if full := facts.get("full of"):
        right = bool(shares) and max(shares, key=shares.get) == ROLES.get(full, full)
    if "parameters" in facts:
        parameters = float(facts["parameters"].removesuffix("MiB")) * MIB
        right = right and abs(shares.get("parameters", 0) - parameters) <= 0.05 * parameters
    check(path, "roles", right, f"{said}, full of {full}, parameters {facts.get('parameters')}")


@pytest.mark.parametrize("path", cases([path for path in CORPUS if {"also", "dtype", "says"} & truth(path).facts.keys()], brief=()))
def test_also(job, check, path):
    """A second cause, the type that makes it large, the words that explain it."""
    facts, report = job(path).wants.facts, job(path).report
    words = " ".join([*(f"{finding['rule']} {finding['evidence']}" for finding in report["findings"]),
                      *(remedy["text"] for remedy in report["remedies"])])
    wrong = [f"no {facts[name]}" for name in ("dtype", "says") if name in facts and facts[name] not in words]
    if "also" in facts and CAUSES[facts["also"]] not in [finding["cause"] for finding in report["findings"]]:
        wrong.append(f"not also {facts['also']}")
    check(path, "also", not wrong, ", ".join(wrong))


@pytest.mark.parametrize("path", cases())
def test_remedies(job, cured, check, table, path):
    """The program ends well once it does what is advised first, and on every size that is said to be enough. Where the first remedy
    fails, the next ones are tried for the table."""
    remedies, kinds = job(path).report["remedies"], [kind for kind, *_ in job(path).wants.cures]
    claims = [number for number, remedy in enumerate(remedies) if remedy["kind"] in SIZES and remedy["check"] != "estimated"]
    cures = False
    for number, remedy in enumerate(remedies):
        if not cures or number in claims:
            helps = table.kinds[remedy["kind"]][path.stem, number] = cured(path, number)
            cures = cures or helps
    row = table.rows[path.stem]
    row["any remedy"] = (cures, [spelled(remedy) for remedy in remedies])
    if claims:
        row["sizes"] = (all(cured(path, number) for number in claims), [spelled(remedies[number]) for number in claims])
    check(path, "first remedy", cured(path, 0), f"{spelled(remedies[0]) if remedies else 'none'}, cures are {kinds}")
    assert row.get("sizes", (True,))[0], f"not enough: {row['sizes'][1]}"


def endings():
    """The device that is enough, and each cure on the one that is not."""
    for path in CORPUS:
        wants = truth(path)
        if "enough" in wants.facts:
            yield pytest.param(path, None, id=f"{path.stem}-enough", marks=tensorflow_marks())
        for cure in wants.cures:
            yield pytest.param(path, cure, id=f"{path.stem}-{cure[0]}", marks=tensorflow_marks())


@pytest.mark.parametrize("path, cure", list(endings()))
def test_the_truth_holds(path, cure, tmp_path):
    wants = truth(path)
    gpu = wants.facts["gpu"] if cure else wants.facts["enough"]
    text = changed(wants.text, *cure[1:]) if cure else wants.text
    assert played(tmp_path, path.name, text, gpu, wants.facts).well
