"""weir metrics: read by Prometheus' own parser, and served to clients that are slow, silent or hostile."""
import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import urllib.request
from types import SimpleNamespace

import pytest
from actors import job, look, surroundings
from conftest import MIB, PATIENCE, WEIR, environment, until, weir
from prometheus_client.parser import text_string_to_metric_families

PAGE = b"GET /metrics HTTP/1.1\r\n\r\n"


def parsed(text):
    """Samples by name."""
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


@contextlib.contextmanager
def served(folder, files=1024):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    process = subprocess.Popen([WEIR, "metrics", "--listen", "127.0.0.1:0"], env=environment(**surroundings(folder)), stdout=subprocess.PIPE,
                               text=True, preexec_fn=limit)
    try:
        yield process, int(re.search(r":(\d+)/metrics", process.stdout.readline()).group(1))
    finally:
        process.kill()
        process.communicate()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def raw(port, sent, half_closed=False):
    """What a client that sends these bytes gets."""
    with connect(port) as client:
        got = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
            if half_closed:
                client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                got += piece
        return got


def status(port, sent):
    return raw(port, sent).split(b"\r\n", 1)[0].decode("latin-1")


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """The page while a job lives, what weir top says at that time, and the samples after the job's death."""
    folder, seen = tmp_path_factory.mktemp("metrics"), SimpleNamespace()
    with job(folder, WEIR_CAP="512MiB", WEIR_GROUP="team") as talk, served(folder) as (_, port):
        seen.pid = talk.pid
        assert [talk.say(f"take {mib}") for mib in (100, 40, 900)] == ["yes", "yes", "no"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            seen.type, seen.text = answer.headers["Content-Type"], answer.read().decode()
        seen.samples = parsed(seen.text)
        seen.gpu = json.loads(look("top", "--json", folder=folder).stdout)["jobs"][0]["gpus"][0]
        talk.process.kill()
        talk.process.wait()
        again = lambda: parsed(raw(port, PAGE).split(b"\r\n\r\n", 1)[1].decode())
        seen.dead = until(lambda: (now := again())["weir_job_up"][0][1] == 0 and now, "weir_job_up of 0")
    return seen


def test_it_is_the_text_format(scraped):
    assert scraped.type == "text/plain; version=0.0.4; charset=utf-8"


def test_the_figures_are_those_of_weir_top(scraped):
    names = ("live", "charged", "cached", "cap", "total", "peak")
    found = {name: scraped.samples[f"weir_gpu_memory_{name}_bytes"][0][1] for name in names}
    assert found == {name: float(scraped.gpu[name]) for name in names}
    assert found["live"] == 140 * MIB


def test_failures_are_counted(scraped):
    assert scraped.samples["weir_oom_total"][0][1] >= 1 and scraped.samples["weir_job_up"][0][1] == 1


def test_the_group_is_named(scraped):
    labels = scraped.samples["weir_job_info"][0][0]
    assert (labels["group"], labels["pid"]) == ("team", str(scraped.pid))


def test_each_family_has_its_help_and_type_once(scraped):
    types, helps = re.findall(r"^# TYPE (\S+)", scraped.text, re.M), re.findall(r"^# HELP (\S+)", scraped.text, re.M)
    assert types and len(types) == len(set(types)) and sorted(types) == sorted(helps)


def test_a_jobs_death_is_seen(scraped):
    assert {labels["life"]: value for labels, value in scraped.dead["weir_jobs"]}["killed"] == 1


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("hostile")) as (process, port):
        yield SimpleNamespace(process=process, port=port)


@pytest.mark.parametrize("sent, code", [
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"), (b"GET / HTTP/1.0\r\n\r\n", "200"), (b"GET /metrics?x=1 HTTP/1.1\n\n", "200"),
    (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404"), (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "405"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"), (b"\r\n\r\n", "400"), (b"GET /metrics HTTP/2\r\n\r\n", "400"),
    (b"G" * 20000, "431"), (b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 200000, "431"),
], ids=["page", "root", "query", "elsewhere", "post", "tls", "empty", "http2", "long-method", "long-header"])
def test_requests_are_answered(server, sent, code):
    assert f" {code} " in status(server.port, sent)


def test_a_client_that_leaves_at_once_is_forgotten(server):
    assert raw(server.port, b"GET /met", half_closed=True) == b""


def test_head_has_no_body(server):
    head = raw(server.port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert head.endswith(b"\r\n\r\n") and b"Content-Length: " in head and b"200 OK" in head


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """Clients that say nothing, stop in the middle, keep coming or read nothing, and what others get meanwhile."""
    seen = SimpleNamespace()
    with served(tmp_path_factory.mktemp("crowd")) as (process, port), contextlib.ExitStack() as clients:
        come = lambda: clients.enter_context(connect(port))
        # Half say nothing at all, half stop in the middle; all of them are there before anybody requests the page.
        for number in range(200):
            client = come()
            with contextlib.suppress(OSError):
                if number % 2:
                    client.sendall(b"GET /metr")
        seen.beside_silent = [status(port, PAGE) for _ in range(5)]
        seen.threads = len(os.listdir(f"/proc/{process.pid}/task"))
        # As many again come one after the other, each while the last scrape waits for its answer.
        seen.beside_new = []
        for _ in range(5):
            last = [come() for _ in range(40)][-1]
            seen.beside_new.append(status(port, PAGE))
        deaf = come()
        deaf.sendall(PAGE + b"x" * 100000)
        seen.beside_deaf = status(port, PAGE)
        seen.late = last.recv(4096).split(b"\r\n", 1)[0]
        seen.code = process.poll()
    return seen


def test_silent_clients_keep_nobody_out(crowd):
    assert all(" 200 " in answer for answer in crowd.beside_silent), crowd.beside_silent


def test_silent_clients_have_no_thread(crowd):
    assert crowd.threads <= 2


def test_clients_that_keep_coming_keep_nobody_out(crowd):
    assert all(" 200 " in answer for answer in crowd.beside_new), crowd.beside_new


def test_a_client_that_reads_nothing_keeps_nobody_out(crowd):
    assert " 200 " in crowd.beside_deaf


def test_a_silent_client_is_answered_or_let_go(crowd):
    assert crowd.late == b"" or b" 408 " in crowd.late


def test_the_server_lives_on(crowd):
    assert crowd.code is None


def test_silent_clients_keep_nobody_out_where_descriptors_are_few(tmp_path):
    with served(tmp_path, files=20) as (_, port), contextlib.ExitStack() as clients:
        for _ in range(60):
            clients.enter_context(connect(port))
        assert " 200 " in status(port, PAGE)


def test_a_port_that_is_taken_is_an_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = weir("metrics", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", env=environment(WEIR_DIR=tmp_path), code=1)
    assert "cannot listen on" in done.stderr
