"""What a job under libweir.so printed, and the events of its journal."""
import json

from conftest import STAGE, TESTS, run, under_weir

JOBS = TESTS / "attribution/jobs"


def recorded(folder, *command, library="lib", code=0, timeout=900, **more):
    """Runs a command under the library; what became of it, and its events."""
    done = run(*command, env=under_weir(folder, library, TF_CPP_MIN_LOG_LEVEL="2", **more), code=code, timeout=timeout)
    events = []
    for journal in folder.glob("*.weir"):
        printed = run(STAGE / "tests/journal-events", journal, quiet=True).stdout
        events += [json.loads(line) for line in printed.splitlines()]
    return done, events


def blocks(events):
    return [event for event in events if event["kind"] == "alloc" and event["class"] == "block"]
