"""What `weir plan` foretells of a Keras job (examples/train.py) on the virtual GPU, and whether it comes true."""
import json

import pytest
from conftest import GIB, MIB, ROOT, WEIR, environment, run, tensorflow, tensorflow_marks, weir

pytestmark = tensorflow_marks()
JOB = ROOT / "examples/train.py"
# Of examples/train.py: three convolutions and three dense layers, in float32.
PARAMETERS = 4 * (896 + 18496 + 73856 + 129 * 4096 + 4097 * 4096 + 4097 * 10)
CONTEXT = 512 * MIB


def plan(folder, *arguments, code=0):
    done = weir("plan", "--json", "--quiet", *arguments, "--", tensorflow()[0], JOB, env=environment(TF_CPP_MIN_LOG_LEVEL="3", HOME=folder, WEIR_DIR=folder),
                code=code, timeout=1200)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def fitting(tmp_path_factory):
    return plan(tmp_path_factory.mktemp("plan"), "--gpu", "2GiB", "--no-confirm")


@pytest.fixture(scope="module")
def peak(fitting):
    return fitting["run"]["peak"]


@pytest.fixture(scope="module")
def roles(peak):
    return dict(peak["roles"])


def test_it_fits_into_2_gib(fitting):
    assert fitting["fits"] is True


def test_the_parameters_are_those_of_the_model(roles):
    assert 0 <= roles["parameters"] - PARAMETERS < PARAMETERS // 50


def test_so_is_the_optimizers_state(roles):
    # Adam keeps two numbers for each.
    assert roles["optimizer state"] >= 2 * PARAMETERS


def test_a_step_has_activations_and_gradients(roles):
    assert roles["activations"] > 16 * MIB and roles["gradients"] > 16 * MIB


def test_roles_add_up_to_what_is_live(roles, peak):
    assert sum(roles.values()) == peak["live"]


def test_holders_are_named(peak):
    assert "train.py" in json.dumps(peak["holders"][:3])


def test_the_least_is_between_what_is_live_and_what_was_taken(peak):
    assert peak["live"] <= peak["enough"] <= peak["taken"]


def test_the_smallest_gpu_holds_it(fitting, peak):
    assert peak["enough"] + CONTEXT <= fitting["smallest"]["gpu"]["bytes"]


@pytest.fixture(scope="module")
def too_small(peak, tmp_path_factory):
    return plan(tmp_path_factory.mktemp("plan"), "--gpu", (peak["enough"] + CONTEXT) * 7 // 8, "--no-confirm", code=3)


def test_it_does_not_fit_into_an_eighth_less(too_small):
    assert too_small["fits"] is False


def test_what_it_needs_is_the_same_there(too_small, peak):
    need, again = peak["enough"] + CONTEXT, too_small["needs"]["peak"]["enough"] + CONTEXT
    assert abs(again - need) < need // 50


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return plan(tmp_path_factory.mktemp("plan"), "--gpu", "2GiB", "--sweep", "BATCH=32,64,96")["sweep"]


def test_a_line_is_found_with_its_error(sweep):
    assert sweep["largest"] and sweep["line"]["error"] > 0


def test_its_bounds_are_around_it_and_not_wide(sweep):
    value, below, above = (sweep["largest"][name] for name in ("value", "at_least", "at_most"))
    assert 0.94 * value < below <= value <= above < 1.06 * value


def test_a_run_within_the_bounds_went_well(sweep):
    good = [value for value, went_well in sweep["confirmed"] if went_well]
    assert good and sweep["largest"]["at_least"] <= good[0] <= sweep["largest"]["at_most"]


def really(folder, batch):
    """The job itself on a GPU of 2 GiB: its exit code, and how often memory was refused."""
    env = environment(WEIR_DIR=folder, WEIR_OOM_TEXT="off", BATCH=batch, VGPU_CONTEXT=CONTEXT, TF_CPP_MIN_LOG_LEVEL="3")
    code = run(WEIR, "run", "--vgpu", 2 * GIB, "--", tensorflow()[0], JOB, env=env, code=None, timeout=600).returncode
    journal, = folder.glob("*.weir")
    return code, json.loads(weir("report", "--json", journal, env=env, code=None).stdout)["oom"]


def test_the_job_itself_ends_well_at_the_lower_bound(sweep, weir_dir):
    assert really(weir_dir, sweep["largest"]["at_least"]) == (0, 0)


def test_the_job_itself_runs_out_of_memory_beyond_the_upper_bound(sweep, weir_dir):
    above = sweep["largest"]["at_most"]
    code, refused = really(weir_dir, above + above // 20)
    assert code != 0 and refused > 0
