"""The real Prometheus and Alertmanager scrape `weir metrics`: a run that began, was refused memory and died between two
scrapes raises an alert. The rules and the dashboard of examples/deploy name only metrics that exist."""
import contextlib
import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.parse
import urllib.request

import pytest
import yaml
from actors import job, surroundings
from conftest import PATIENCE, ROOT, WEIR, environment, need, run, until, weir

DEPLOY = ROOT / "examples/deploy"
RULES = DEPLOY / "prometheus/weir.rules.yaml"
DASHBOARD = DEPLOY / "grafana.json"


@pytest.fixture(scope="module", autouse=True)
def tools():
    need("promtool", "prometheus")
    need("prometheus-alertmanager", "prometheus-alertmanager")


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels():
    return [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@contextlib.contextmanager
def started(*command, port, ready="/-/ready", **more):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)
    try:
        def is_ready():
            assert process.poll() is None, process.stderr.read()
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=5).status == 200
        until(is_ready, f"{command[0]} is ready")
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def receiver():
    """Alerts as Alertmanager sends them to a webhook."""
    alerts = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            alerts.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, alerts
    finally:
        server.shutdown()


def test_promtool_accepts_the_rules_and_their_tests():
    run("promtool", "check", "rules", RULES)
    run("promtool", "test", "rules", "weir.rules.test.yaml", cwd=RULES.parent)
    run("promtool", "check", "config", RULES.parent / "prometheus.yaml")


def test_promtool_finds_nothing_in_the_metrics(tmp_path):
    page = weir("metrics", "--once", env=environment(**surroundings(tmp_path))).stdout
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_rules_and_dashboard_name_metrics_that_exist(tmp_path):
    page = weir("metrics", "--once", env=environment(**surroundings(tmp_path))).stdout
    known = set(re.findall(r"^# TYPE (\S+)", page, re.M)) | {rule["record"] for rule in rules() if "record" in rule}
    named = {name for text in [rule["expr"] for rule in rules()] + panels() for name in re.findall(r"(?:\w+:)?weir[_:]\w+(?::\w+)*", text)}
    assert len(named) > 10 and named <= known, named - known


def test_a_refusal_between_two_scrapes_raises_an_alert(tmp_path):
    ports = {name: free_port() for name in ("weir", "prometheus", "alertmanager")}
    folder = tmp_path / "journals"
    folder.mkdir(mode=0o700)
    (tmp_path / "weir.rules.yaml").write_text(RULES.read_text())
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{ports['alertmanager']}"]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{ports['weir']}"]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with contextlib.ExitStack() as stack:
        hook, alerts = stack.enter_context(receiver())
        (tmp_path / "alertmanager.yaml").write_text(yaml.safe_dump({
            "route": {"receiver": "test", "group_wait": "0s", "group_interval": "1s"},
            "receivers": [{"name": "test", "webhook_configs": [{"url": f"http://127.0.0.1:{hook}/"}]}]}))
        begin = lambda *command, **more: stack.enter_context(started(*command, **more))
        begin(WEIR, "metrics", "--listen", f"127.0.0.1:{ports['weir']}", port=ports["weir"], ready="/metrics",
              env=environment(**surroundings(folder)))
        begin(shutil.which("prometheus-alertmanager"), f"--config.file={tmp_path}/alertmanager.yaml", f"--storage.path={tmp_path}/am",
              f"--web.listen-address=127.0.0.1:{ports['alertmanager']}", "--cluster.listen-address=", port=ports["alertmanager"])
        begin(shutil.which("prometheus"), f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/tsdb",
              f"--web.listen-address=127.0.0.1:{ports['prometheus']}", port=ports["prometheus"])

        def ask(expression):
            url = f"http://127.0.0.1:{ports['prometheus']}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return json.loads(answer.read())["data"]["result"]

        # The counter is there with 0 before anything happens.
        until(lambda: [sample["value"][1] for sample in ask("weir_runs_oom_total")] == ["0"], "the first scrape")
        with job(folder, WEIR_CAP="64MiB", WEIR_POD="team/train-0", SLURM_JOB_ID="17") as talk:
            assert talk.say("take 900") == "no"
            pid = str(talk.pid)
            talk.process.kill()
            talk.process.wait()
        found = until(lambda: [alert for alert in alerts if alert["labels"]["alertname"] == "WeirOutOfMemory"], "the alert")
        assert found[0]["status"] == "firing" and "was refused GPU memory" in found[0]["annotations"]["summary"]
        assert pid in found[0]["annotations"]["description"]
        # A run that is dead is still there, with its labels.
        info = until(lambda: [sample["metric"] for sample in ask("weir_job_info")], "the job")
        assert [(one["pid"], one["pod"], one["job_id"]) for one in info] == [(pid, "team/train-0", "17")]
        until(lambda: ask('weir_runs_ended_total{life="killed"}')[0]["value"][1] == "1", "its end in the counter")
        assert ask("weir_last_oom_requested_bytes")[0]["metric"]["cause"] == "cap"
        # Each panel is an expression that Prometheus can read; one shows this run.
        for expression in panels():
            ask(expression.replace("$instance", ".*"))
        # Recorded at the next evaluation of the rules.
        until(lambda: ask('user:weir_gpu_memory_charged_bytes:sum') and ask('weir:gpu_memory_peak:ratio_of_cap'), "the recorded rules")
