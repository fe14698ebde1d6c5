"""The processes that the tests of this folder watch: a job on the virtual GPU, and the writer of a journal of any content."""
import sys

from conftest import RELEASE, STAGE, TESTS, Conversation, cargo, environment, under_weir, weir

JOB = [sys.executable, TESTS / "live/job.py"]


def surroundings(folder):
    """Variables for whatever looks into a folder of journals."""
    return {"HOME": folder, "WEIR_DIR": folder, "WEIR_RING": "64K", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}


def job(folder, **more):
    """A job on the virtual GPU under libweir.so."""
    env = under_weir(folder, **{**surroundings(folder), "WEIR_OOM_TEXT": "off", "VGPU_MEM": "4GiB", "VGPU_BACKING": "none", **more})
    talk = Conversation([*JOB, "serve"], env)
    assert talk.answer() == "ready"
    return talk


def actor(folder):
    """A process with the journal of a job that never was."""
    cargo("-p", "weir-tests", "--bin", "live-actor")
    talk = Conversation([RELEASE / "live-actor", folder], environment(**surroundings(folder)))
    talk.answer()
    return talk


def look(*arguments, folder, **more):
    """Runs weir on a folder of journals."""
    return weir(*arguments, env=environment(**{**surroundings(folder), **more}))
