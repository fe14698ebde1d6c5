"""weir ship and weir fleet: what is in a lake is read by DuckDB, pyarrow and Spark, and compared with the reports of the runs, or
with what was counted while runs were made up."""
import contextlib
import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import duckdb
import pyarrow.fs
import pyarrow.parquet
import pytest
import yaml

from conftest import MIB, PATIENCE, ROOT, STAGE, TESTS, WEIR, environment, need, python_of, run, under_weir, until, weir

HERE = pathlib.Path(__file__).resolve().parent
JOB = TESTS / "fleet/job.py"
GIB = 1 << 30


def job(folder, *arguments, code=0, **more):
    """A job on a virtual GPU of 1 GiB."""
    return run(sys.executable, JOB, *arguments, env=under_weir(folder, **{"VGPU_MEM": "1GiB", "WEIR_RING": "4K,1K", **more}), code=code)


def python():
    return python_of("lake", HERE / "requirements.txt")


def view(lake, events=False):
    """The rows of a lake by DuckDB, as dictionaries."""
    what = "events" if events else "runs"
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    found = duck.sql(f"SELECT * FROM read_parquet('{lake}/{what}/*/*.parquet', hive_partitioning = true, union_by_name = true)")
    return found.to_arrow_table().to_pylist()


def ship(lake, *arguments, code=0, **how):
    return weir("ship", lake, *arguments, code=code, **how)


def shipped(lake, *arguments, **how):
    return json.loads(ship(lake, "--json", *arguments, **how).stdout)


def made_up(number, file, *arguments):
    """Made-up runs in a file; what a reader must find."""
    with open(file, "w") as to:
        done = subprocess.run([sys.executable, HERE / "made_up.py", str(number), *arguments], stdout=to, stderr=subprocess.PIPE, text=True, timeout=600, check=True)
    return json.loads(done.stderr)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs that ended in each way, and one that lives."""
    folder = tmp_path_factory.mktemp("runs")
    job(folder, "--until", "64", WEIR_POD="good-0")
    job(folder, "--fail", code=1, WEIR_CAP="256MiB", SLURM_JOB_ID="7", SLURM_STEP_ID="0", SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="4", SLURM_JOB_NAME="nightly",
        SLURM_JOB_PARTITION="gpu", SLURMD_NODENAME="n2", WEIR_GROUP="team")
    job(folder, WEIR_CAP="512MiB")
    end = folder / "end"
    started = [subprocess.Popen([sys.executable, JOB, "--until", "128", "--hold", end], stdout=subprocess.PIPE, text=True,
                                env=under_weir(folder, VGPU_MEM="1GiB", WEIR_RING="4K,1K")) for _ in range(2)]
    for one in started:
        assert json.loads(one.stdout.readline())["taken"] == 128
    started[0].send_signal(signal.SIGKILL)
    started[0].wait()
    yield folder, started[1]
    started[1].kill()
    started[1].wait()


def test_a_run_is_a_row_and_what_lives_is_none(runs, tmp_path):
    folder, alive = runs
    lake = tmp_path / "lake"
    done = shipped(lake, "--dir", folder, "--host", "here", "--events")
    assert (done["shipped"], done["there"], done["running"], done["left_out"]) == (4, 0, 1, 0), done
    rows = {row["outcome"]: row for row in view(lake)}
    assert sorted(rows) == ["killed", "ok", "oom", "recovered"], rows
    listed = {one["pid"]: one for one in json.loads(weir("list", "--json", "--dir", folder).stdout)}
    assert alive.pid in listed and alive.pid not in [int(row["run"].split("-")[1]) for row in rows.values()]
    for outcome, row in rows.items():
        pid = int(row["run"].split("-")[1])
        report = json.loads(weir("report", pid, "--dir", folder, "--json", *(["--at", "end"] if not row["ooms"] else [])).stdout)
        assert row["peak"] == report["peak"] and row["cap"] == (report["cap"] or None), row
        assert row["command"] == report["command"] and row["name"] == ("nightly" if outcome == "oom" else "job.py")
        assert row["events"] == listed[pid]["events"] and row["ooms"] == report["oom"]
        assert row["gpu_memory"] == GIB and row["gpus"] == 1 and row["gpu_uuid"].startswith("GPU-") and row["gpu"] == report["device_name"]
        assert row["exit_status"] == {"ok": 0, "oom": 1, "recovered": 0, "killed": None}[outcome]
        assert str(row["day"]) == f"{row['started']:%Y-%m-%d}" and abs(row["started"].timestamp() - listed[pid]["started_ns"] / 1e9) < 1e-5
        assert 0 <= row["seconds"] < 600 and abs((row["ended"] - row["started"]).total_seconds() - row["seconds"]) < 1e-5
        if row["ooms"]:
            assert row["cause"] == report["findings"][0]["cause"] and row["evidence"] == report["findings"][0]["evidence"]
            assert row["requested"] == report["request"]["bytes"] == 64 * MIB
            # `job.py:35`, and its folder beside it.
            assert row["line"] == report["request"]["python"].rsplit("/")[-1] and row["file"] == str(JOB)
            assert row["remedy"] == report["remedies"][0]["text"] and row["remedy_check"] == report["remedies"][0]["check"]
        else:
            assert row["cause"] is row["line"] is row["requested"] is row["remedy"] is None
    oom = rows["oom"]
    assert (oom["host"], oom["job"], oom["step"], oom["task"], oom["tasks"], oom["partition"], oom["cap_group"]) == ("n2", "7", "0", 1, 4, "gpu", "team")
    assert rows["ok"]["host"] == "here" and rows["ok"]["pod"] == "good-0" and rows["ok"]["job"] is None
    # The events are those of the export, a file a run.
    assert len(view(lake, events=True)) >= sum(1 for row in rows.values())
    for row in rows.values():
        (file,) = lake.glob(f"events/*/{row['run']}.parquet")
        assert pyarrow.parquet.read_metadata(file).num_rows == row["events"]


def test_a_run_is_shipped_once(runs, tmp_path):
    folder, _ = runs
    lake = tmp_path / "lake"
    assert shipped(lake, "--dir", folder, "--job", "7")["shipped"] == 1
    again = shipped(lake, "--dir", folder)
    assert (again["shipped"], again["there"]) == (3, 1)
    # As rows, too: what --print prints is what --rows takes.
    rows = tmp_path / "rows"
    rows.write_text(weir("ship", "--print", "--dir", folder).stdout)
    assert len(rows.read_text().splitlines()) == 4
    assert json.loads(ship(lake, "--rows", rows).stdout)["files"] == 0
    assert len(view(lake)) == 4
    second = tmp_path / "second"
    assert json.loads(ship(second, "--rows", rows).stdout) == {"rows": 4, "files": len(list((second / "runs").iterdir()))}
    key = lambda row: row["run"]
    assert sorted(view(second), key=key) == sorted(view(lake), key=key)
    assert shipped(second, "--dir", folder)["shipped"] == 0


def test_writers_of_many_machines_never_meet(runs, tmp_path):
    folder, _ = runs
    lake, rows = tmp_path / "lake", []
    truth = 0
    for machine in range(6):
        file = tmp_path / f"rows-{machine}"
        truth += made_up(500, file, "--seed", str(machine))["runs"]
        rows.append(file)
    # Each twice at the same time, and the same journals by four more.
    commands = [[WEIR, "ship", lake, "--rows", file] for file in rows + rows] + [[WEIR, "ship", lake, "--dir", folder]] * 4
    working = [subprocess.Popen([str(word) for word in command], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
    # A reader beside them sees whole files only.
    while any(one.poll() is None for one in working):
        for file in lake.glob("runs/*/*.parquet"):
            pyarrow.parquet.read_metadata(file)
    for one in working:
        out, err = one.communicate()
        assert one.returncode == 0, (out, err)
    found = view(lake)
    assert len({row["run"] for row in found}) == truth + 4
    # Who stored the same at the same time stored one file, as the names are those of what is in them.
    assert len(found) == truth + 4
    left = [path for path in lake.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    assert not left, left


def same(one, other):
    """Alike but for the order in which hours were added up."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return math.isclose(one, other, rel_tol=1e-9) if isinstance(one, float) else one == other


def test_merging_changes_no_answer(tmp_path):
    lake, rows = tmp_path / "lake", tmp_path / "rows"
    truth = made_up(3000, rows)
    lines = rows.read_text().splitlines()
    for part in range(6):
        rows.write_text("\n".join(lines[part::6]))
        ship(lake, "--rows", rows)
    month = lambda: json.loads(weir("fleet", lake, "--json").stdout)
    before = month()
    files = len(list(lake.glob("runs/*/*.parquet")))
    done = json.loads(weir("fleet", lake, "--merge").stdout)
    assert done["days"] == 31 and done["files"] == files and not done["left"] and done["twice"] == 0
    assert len(list(lake.glob("runs/*/*.parquet"))) == 31
    assert same(month(), before)
    assert before["all"]["runs"] == len(view(lake)) == truth["runs"]
    rows.write_text("\n".join(lines))
    assert json.loads(ship(lake, "--rows", rows).stdout)["files"] == 0, "what was merged is not stored again"


class Tags(html.parser.HTMLParser):
    """Which tags and which text a page has."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def test_the_month_is_what_was_counted_and_its_page_loads_nothing(tmp_path):
    lake, rows, page = tmp_path / "lake", tmp_path / "rows", tmp_path / "month.html"
    truth = made_up(4000, rows)
    made_up(50, tmp_path / "older", "--month", "2026-09", "--seed", "2")
    for file in (rows, tmp_path / "older"):
        ship(lake, "--rows", file)
    month = json.loads(weir("fleet", lake, "--json").stdout)
    assert month["month"] == "2026-10" and month["all"]["runs"] == truth["runs"] and month["lost"]["runs"] == truth["oom"]
    assert month["recovered"] == truth["recovered"]
    assert abs(month["lost"]["gpu_hours"] * 3600 - truth["lost_seconds"]) < 1 and abs(month["all"]["gpu_hours"] * 3600 - truth["gpu_seconds"]) < 1
    assert {one["cause"]: one["runs"] for one in month["causes"]} == truth["causes"]
    assert sum(day["runs"] for day in month["days"]) == truth["runs"] and sum(day["oom"] for day in month["days"]) == truth["oom"]
    for line in month["lines"]:
        assert truth["lines"].get(f"{line['line']} {line['op']}", line["runs"]) == line["runs"]
    assert [line["runs"] for line in month["lines"][:3]] == sorted(truth["lines"].values(), reverse=True)[:3]
    assert {one["name"]: one["peak"] for one in month["jobs"]} == truth["peaks"]
    assert json.loads(weir("fleet", lake, "--month", "2026-09", "--json").stdout)["all"]["runs"] == 50
    assert json.loads(weir("fleet", lake, "--month", "all", "--json").stdout)["all"]["runs"] == truth["runs"] + 50
    weir("fleet", lake, "--html", page)
    found = Tags(page.read_text())
    assert not {"script", "link", "img", "iframe", "b-all"} & {tag for tag, _ in found.tags}
    assert not [attributes for _, attributes in found.tags if {"src", "href", "onclick"} & set(attributes)]
    words = " ".join(found.words)
    assert "eval <b>all</b>" in words, "a name is text, whatever is in it"
    for cause in truth["causes"]:
        assert cause.replace("_", " ") in words
    assert len([tag for tag, attributes in found.tags if tag == "rect" and attributes["class"] == "all"]) == 31
    text = weir("fleet", lake).stdout
    assert f"{truth['oom']} ran out of memory" in text.replace("\u202f", "")


def test_what_is_wrong_is_named(tmp_path, weir_dir):
    assert "no runs" in weir("fleet", tmp_path / "none", code=1).stderr
    for rows, why in [("{", "line 1"), ('{"run": "a"}', "started"), ('{"run": "../x", "started": 1}', "'-'"), ('{"run": "a", "started": 1, "colour": 2}', "colour"),
                      ('{"run": "a", "started": "soon"}', "line 1")]:
        file = tmp_path / "rows"
        file.write_text(rows)
        assert why in ship(tmp_path / "lake", "--rows", file, code=1).stderr, rows
    assert not (tmp_path / "lake").exists()
    assert "expected a folder or s3" in ship("gs://bucket", "--dir", weir_dir, code=1).stderr
    (weir_dir / "1-x.weir").write_text("no journal")
    done = ship(tmp_path / "lake", "--dir", weir_dir)
    assert "left out" in done.stderr and "shipped 0 runs" in done.stdout
    alone = tmp_path / "bin"
    alone.mkdir()
    shutil.copy(WEIR, alone / "weir")
    assert "no weir-fleet beside weir" in run(alone / "weir", "ship", tmp_path / "lake", "--dir", weir_dir, code=1).stderr


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def bucket():
    """moto's S3, and the environment that reaches it."""
    port = free_port()
    server = subprocess.Popen([python(), "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    try:
        store = None

        def there():
            nonlocal store
            try:
                store = pyarrow.fs.S3FileSystem(access_key="a", secret_key="b", endpoint_override=f"http://127.0.0.1:{port}", region="us-east-1", allow_bucket_creation=True)
                store.create_dir("bucket")
                return True
            except OSError:
                return False
        until(there, "moto's S3")
        yield store, environment(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1", AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    finally:
        server.kill()
        server.wait()


def test_a_bucket_is_a_lake(runs, tmp_path):
    folder, _ = runs
    with bucket() as (store, env):
        lake = "s3://bucket/team/lake"
        assert shipped(lake, "--dir", folder, "--events", env=env)["shipped"] == 4
        assert shipped(lake, "--dir", folder, env=env) == {"lake": lake, "shipped": 0, "there": 4, "running": 1, "left_out": 0}
        read = lambda what: pyarrow.parquet.read_table(f"bucket/team/lake/{what}", filesystem=store)
        assert sorted(read("runs")["outcome"].to_pylist()) == ["killed", "ok", "oom", "recovered"] and read("events").num_rows > 4
        rows = tmp_path / "rows"
        truth = made_up(300, rows)
        ship(lake, "--rows", rows, env=env)
        assert json.loads(weir("fleet", lake, "--month", "2026-10", "--json", env=env).stdout)["lost"]["runs"] == truth["oom"]
        # One more file for a day, so that there is something to merge.
        first = json.loads(rows.read_text().splitlines()[0])
        first["run"] += "-2"
        rows.write_text(json.dumps(first))
        ship(lake, "--rows", rows, env=env)
        merged = json.loads(weir("fleet", lake, "--merge", env=env).stdout)
        assert merged["days"] == 1 and merged["files"] == 2, merged
        assert read("runs").num_rows == truth["runs"] + 1 + 4
    assert ship(lake, "--dir", folder, code=1, env={**env, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, timeout=300).stderr


def test_the_daemonsets_container_ships(runs):
    folder, _ = runs
    need("kubectl", "kubernetes-client")
    built = list(yaml.safe_load_all(run("kubectl", "kustomize", ROOT / "examples/deploy/kubernetes-lake").stdout))
    (pod,) = [one["spec"]["template"]["spec"] for one in built if one["kind"] == "DaemonSet"]
    containers = {one["name"]: one for one in pod["containers"]}
    assert set(containers) == {"metrics", "ship"} and pod["hostPID"], "the base's are still there"
    container = containers["ship"]
    assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
    words = [word.replace("$(NODE)", "gpu-7").replace("/var/lib/weir", str(folder)).replace("5min", "200ms") for word in container["command"]]
    assert words.pop(0) == "weir" and folder.name in words[-1]
    with bucket() as (store, env):
        shipping = subprocess.Popen([str(WEIR), *words], env=env, stdout=subprocess.PIPE, text=True)
        try:
            assert shipping.stdout.readline().startswith("shipped 4 runs")
            read = lambda: pyarrow.parquet.read_table("bucket/lake/runs", filesystem=store).to_pylist()
            assert {row["host"] for row in read()} == {"gpu-7", "n2"}
            # A run that ends later is shipped at the next turn.
            job(folder, "--until", "64", WEIR_POD="later")
            assert shipping.stdout.readline().startswith("shipped 1 runs")
            assert [row["outcome"] for row in read() if row["pod"] == "later"] == ["ok"]
        finally:
            shipping.kill()
            shipping.wait()
            for journal in folder.glob("*.weir"):
                if b"WEIR_POD=later" in journal.read_bytes():
                    journal.unlink()


QUERIES = re.compile(r"```sql\n-- (\w+)\n(SELECT.*?)```", re.S)


def asked(engine, lake, queries, *arguments, interpreter=sys.executable, **more):
    done = subprocess.run([str(word) for word in (interpreter, HERE / engine, lake, *arguments)], input=json.dumps(queries), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=environment(**more), timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def alike(one, other):
    """Sums of floats, in whatever order, may differ in the last digit that is shown."""
    if isinstance(one, float) or isinstance(other, float):
        return abs(float(one) - float(other)) <= 0.11
    return one == other or str(one).split(".")[0].removesuffix("+00:00") == str(other).split(".")[0].removesuffix("+00:00")


def test_a_million_runs_by_duckdb_and_spark(tmp_path):
    number = int(os.environ.get("WEIR_TEST_RUNS", 1_000_000))
    rows, lake = tmp_path / "rows", tmp_path / "lake"
    truth = made_up(number, rows)
    began = time.monotonic()
    ship(lake, "--rows", rows, timeout=900)
    size = lambda: sum(file.stat().st_size for file in lake.glob("runs/*/*.parquet"))
    told = [f"{number} rows of {rows.stat().st_size / MIB:.0f} MiB JSON stored in {time.monotonic() - began:.1f} s: "
            f"{len(list(lake.glob('runs/*/*.parquet')))} files, {size() / MIB:.1f} MiB"]
    began = time.monotonic()
    weir("fleet", lake, "--merge", timeout=900)
    told += [f"merged in {time.monotonic() - began:.1f} s: {len(list(lake.glob('runs/*/*.parquet')))} files, {size() / MIB:.1f} MiB"]
    began = time.monotonic()
    weir("fleet", lake, "--html", tmp_path / "month.html", timeout=900)
    told += [f"weir fleet --html in {time.monotonic() - began:.1f} s: {(tmp_path / 'month.html').stat().st_size} bytes"]
    month = json.loads(weir("fleet", lake, "--json", timeout=900).stdout)
    assert month["all"]["runs"] == number and {one["cause"]: one["runs"] for one in month["causes"]} == truth["causes"]
    queries = dict(QUERIES.findall((ROOT / "docs/reference/lake.md").read_text()))
    assert sorted(queries) == ["caps", "causes", "gpus", "lines", "user"]
    need("java", "openjdk-17-jre-headless")
    log = tmp_path / "events"
    log.mkdir()
    duck = asked("duck.py", lake, queries)
    spark = asked("spark.py", lake, queries, log, interpreter=python())
    for name in queries:
        one, other = duck[name], spark[name]
        told += [f"{name:8} {len(one['rows']):3} rows   DuckDB {one['seconds']:6.2f} s {one['bytes'] / MIB:7.2f} MiB read   "
                 f"Spark {other['seconds']:6.2f} s {other['bytes'] / MIB:7.2f} MiB read"]
        assert len(one["rows"]) == len(other["rows"]) > 0, name
        for ours, theirs in zip(one["rows"], other["rows"]):
            assert all(alike(*pair) for pair in zip(ours, theirs)), (name, ours, theirs)
        # A column store reads the columns that are asked for, and the days.
        assert 0 < one["bytes"] < size() and 0 < other["bytes"] < size(), (name, one["bytes"], other["bytes"])
    assert {row[0]: row[1] for row in duck["causes"]["rows"]} == truth["causes"]
    assert {f"{row[0]} {row[1]}": row[2] for row in duck["lines"]["rows"]}.items() <= truth["lines"].items()
    assert {row[0]: row[3] for row in duck["caps"]["rows"]} == truth["peaks"]
    print("\n".join(told))
    (ROOT / "target/lake.txt").write_text("\n".join(told) + "\n")


class Receiver:
    """OpenTelemetry's protocol, decoded by its own protobuf."""

    def __init__(self, port=0):
        self.process = subprocess.Popen([str(python()), str(HERE / "receiver.py"), str(port)], stdout=subprocess.PIPE, text=True, env=environment())
        self.port = json.loads(self.process.stdout.readline())["port"]

    def next(self, path):
        while line := self.process.stdout.readline():
            got = json.loads(line)
            if got["path"] == path:
                return got["request"]
        pytest.fail("the receiver has ended")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def attributes(of):
    return {one["key"]: next(iter(one["value"].values())) for one in of.get("attributes", [])}


def figures(request):
    (resource,) = request["resourceMetrics"]
    found = {}
    for metric in resource["scopeMetrics"][0]["metrics"]:
        kind = "sum" if "sum" in metric else "gauge"
        if kind == "sum":
            assert metric["sum"]["isMonotonic"] and metric["sum"]["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"
        found[metric["name"]] = (metric.get("unit", ""), kind, [(attributes(point), point["asDouble"]) for point in metric[kind]["dataPoints"]])
    return attributes(resource["resource"]), found


def test_metrics_and_failures_reach_opentelemetry(tmp_path):
    folder = tmp_path / "weir"
    folder.mkdir(mode=0o700)
    port = free_port()
    command = [WEIR, "metrics", "--otlp", f"http://127.0.0.1:{port}", "--every", "300ms", "--dir", folder]
    log = open(tmp_path / "log", "w+")
    env = environment(OTEL_RESOURCE_ATTRIBUTES="cluster=test")
    sender = subprocess.Popen([str(word) for word in command], env=env, stderr=log)
    end = tmp_path / "end"
    holder = subprocess.Popen([sys.executable, JOB, "--until", "128", "--hold", end], stdout=subprocess.PIPE, text=True,
                              env=under_weir(folder, VGPU_MEM="1GiB", WEIR_CAP="512MiB", WEIR_RING="4K,1K"))
    try:
        assert json.loads(holder.stdout.readline())["taken"] == 128
        # Nobody listens yet: that is said once, and the failure of then is not lost.
        until(lambda: "tried again" in (tmp_path / "log").read_text(), "the line about the receiver")
        failed = subprocess.run([sys.executable, str(JOB), "--fail"], stdout=subprocess.PIPE, env=under_weir(folder, VGPU_MEM="1GiB", WEIR_CAP="256MiB", WEIR_RING="4K,1K"))
        assert failed.returncode == 1
        time.sleep(1)
        assert (tmp_path / "log").read_text().count("tried again") == 1
        with Receiver(port) as receiver:
            (resource,) = receiver.next("/v1/logs")["resourceLogs"]
            (record,) = resource["scopeLogs"][0]["logRecords"]
            told = attributes(record)
            assert record["severityText"] == "ERROR" and record["eventName"] == "weir.oom" and record["body"]["stringValue"].startswith("out of GPU memory: job.py --fail")
            assert (told["weir.cause"], told["weir.line"].split(":")[0]) == ("cap", "job.py")
            assert int(told["weir.cap"]) == 256 * MIB and int(told["weir.requested"]) == 64 * MIB and "weir.remedy" in told
            row = json.loads(weir("ship", "--print", "--dir", folder, "--no-replay").stdout)
            # It may be sent before the run has ended.
            assert set(row) - {name.removeprefix("weir.") for name in told} <= {"outcome", "exit_status"}
            named, found = figures(receiver.next("/v1/metrics"))
            assert named["service.name"] == "weir" and named["cluster"] == "test" and named["host.name"]
            assert found["weir.gpu.memory.live"][:2] == ("By", "gauge") and found["weir.runs.oom"][1] == "sum"
            live = {labels["pid"]: value for labels, value in found["weir.gpu.memory.live"][2]}
            assert live[str(holder.pid)] == 128 * MIB
            assert [value for _, value in found["weir.runs.oom"][2]] == [1]
            # The same families as Prometheus gets, with the same labels.
            listed = json.loads(weir("metrics", "--json", "--dir", folder).stdout)
            assert len([family for family in listed if family["samples"]]) <= len(found)
            # What has ended is not sent for ever.
            end.write_text("")
            holder.wait(PATIENCE)
            up = lambda: {labels["pid"]: value for labels, value in figures(receiver.next("/v1/metrics"))[1]["weir.job.up"][2]}
            until(lambda: up().get(str(holder.pid)) == 0, "the end of the job")
            for file in folder.glob("*.weir"):
                file.unlink()
            jobs = lambda: {labels["pid"] for labels, _ in figures(receiver.next("/v1/metrics"))[1].get("weir.job.up", ("", "", []))[2]}
            until(lambda: str(holder.pid) not in jobs(), "no figure of a job that is gone")
    finally:
        for one in (holder, sender):
            one.kill()
            one.wait()


def test_the_reference_has_the_columns():
    text = (ROOT / "docs/reference/lake.md").read_text()
    table = run(STAGE / "bin/weir-fleet", "columns").stdout
    assert f"<!-- columns: weir-fleet columns -->\n{table}" in text, table
