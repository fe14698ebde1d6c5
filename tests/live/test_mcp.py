"""weir mcp, as the official Python client sees it."""
import json
import pathlib

import pytest
from actors import job, look, surroundings
from conftest import MIB, TESTS, WEIR, environment, python_of, run


@pytest.fixture(scope="module")
def got(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mcp")
    with job(folder, WEIR_CAP="512MiB") as talk:
        assert [talk.say(f"take {mib}") for mib in (100, 40, 900)] == ["yes", "yes", "no"]
    [recorded] = json.loads(look("list", "--json", folder=folder).stdout)
    python = python_of("mcp", TESTS / "live/requirements-mcp.txt")
    done = run(python, TESTS / "live/mcp_client.py", WEIR, folder, recorded["run"], env=environment(**surroundings(folder)), timeout=300)
    return json.loads(done.stdout) | {"run": recorded["run"]}


def test_the_client_finds_the_tools(got):
    assert got["server"] == "weir" and set(got["tools"]) == {"weir_list", "weir_report", "weir_replay", "weir_plan"}


def test_the_tools_answer_as_the_commands_do(got):
    for name in ("list", "report", "replay", "plan"):
        assert not got[name]["error"], got[name]
    assert json.loads(got["list"]["text"])[0]["run"] == got["run"]
    report = json.loads(got["report"]["text"])
    assert "CAP" in json.dumps(report).upper() and str(900 * MIB) in got["report"]["text"]
    assert json.loads(got["replay"]["text"]) and json.loads(got["plan"]["text"])


def test_an_error_is_the_commands_own_and_ends_nothing(got):
    assert got["missing"]["error"] and "no-such-run" in got["missing"]["text"]
    assert json.loads(got["again"]["text"])[0]["run"] == got["run"]


def test_an_argument_is_no_option(got):
    assert got["option"]["error"] and "is not a value" in got["option"]["text"]
    assert not pathlib.Path("/tmp/weir-mcp-must-not-exist").exists()
