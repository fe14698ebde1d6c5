"""Python lines in the journal, without TensorFlow: CPython 3.9 to 3.13, one that is not known, and wrong guesses about them."""
import functools
import json
import shutil

import pytest
from conftest import cpython
from journals import JOBS, blocks, recorded

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]
OFFSETS = ("thread_frame record_frame frame_previous frame_code frame_at frame_functions function_attributes code_start code_file code_name "
           "code_first_line code_table text_header").split()
MISTAKES = [(field, distance) for field in OFFSETS for distance in (-8, 8, 264)]


@pytest.fixture(scope="module")
def interpreter():
    """The interpreter of a version; the test is skipped where there is none."""
    def found(version):
        return cpython(version) or pytest.skip(f"CPython {version} is not installed")
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_events_name_the_lines_that_python_names(interpreter, weir_dir, version):
    done, events = recorded(weir_dir, interpreter(version), JOBS / "lines.py")
    expected = json.loads(done.stdout)
    taken = {event["address"]: event for event in blocks(events)}
    assert len(expected) > 500 and set(map(int, expected)) <= set(taken)
    for address, frames in expected.items():
        frames = [f"{file}:{line} in {function}" for file, line, function in frames]
        named = taken[int(address)]["python"]
        if len(frames) <= 16:
            assert named == frames
        else:
            rest = iter(frames)
            assert named[:8] == frames[:8] and len(named) == 16 and all(line in rest for line in named), (named, frames)


def test_an_unknown_cpython_has_no_lines_and_goes_on(interpreter, weir_dir):
    done, events = recorded(weir_dir, interpreter("3.8"), JOBS / "lines.py")
    taken = blocks(events)
    assert len(taken) == len(json.loads(done.stdout)) and not any(event["python"] for event in taken)


@pytest.fixture(scope="module")
def mistaken(interpreter, tmp_path_factory):
    """A job with an offset that is wrong: how many blocks it took, and whether lines were recorded nevertheless. Run once each."""
    @functools.cache
    def result(version, field, distance):
        folder = tmp_path_factory.mktemp("weir")
        done, events = recorded(folder, interpreter(version), JOBS / "lines.py", library="lib-faults",
                                WEIR_FAULT=f"python:{field}:{distance}", WEIR_RING="4096,4096")
        shutil.rmtree(folder)
        return len(json.loads(done.stdout)), any(event.get("python") for event in events)
    return result


@pytest.mark.parametrize("field, distance", MISTAKES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_goes_on_whatever_offset_is_wrong(mistaken, version, field, distance):
    assert mistaken(version, field, distance)[0] > 500


@pytest.mark.parametrize("version", VERSIONS)
def test_most_wrong_offsets_are_noticed(mistaken, version):
    # A wrong place of the first line, say, cannot be noticed.
    unnoticed = [mistake for mistake in MISTAKES if mistaken(version, *mistake)[1]]
    assert len(unnoticed) < len(OFFSETS) * 2, unnoticed
