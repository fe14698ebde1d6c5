"""weir mcp and the official client of the protocol."""
import json

from actors import job, look, surroundings
from conftest import TESTS, WEIR, environment, python_of, run


def test_the_official_client_lists_reports_replays_and_plans(tmp_path):
    with job(tmp_path, WEIR_CAP="64MiB") as talk:
        assert talk.say("take 40") == "yes" and talk.say("take 900") == "no"
        pid = str(talk.pid)
    calls = [["weir_list", {}], ["weir_report", {"run": pid}], ["weir_replay", {"run": pid, "cap": "2GiB"}], ["weir_plan", {"run": pid, "gpu": "24GiB"}],
             ["weir_report", {"run": "no-such-run"}], ["weir_report", {"run": "--html=/tmp/x"}]]
    client = python_of("mcp", TESTS / "live/mcp.txt")
    done = run(client, TESTS / "live/mcp_client.py", WEIR, tmp_path, json.dumps(calls), env=environment(**surroundings(tmp_path)))
    said = json.loads(done.stdout)
    assert said["hello"]["serverInfo"]["name"] == "weir" and said["tools"] == ["weir_list", "weir_report", "weir_replay", "weir_plan"]
    failed, texts = zip(*said["answers"])
    assert failed == (False, False, False, False, True, True), texts
    listed, report, replay, plan = map(json.loads, texts[:4])
    assert listed == json.loads(look("list", "--json", folder=tmp_path).stdout)
    assert report["findings"][0]["cause"] == "request_too_large" and replay and plan
    assert "no-such-run" in texts[4]
