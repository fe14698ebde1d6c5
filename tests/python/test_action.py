"""The GitHub Action: its script is run as a runner would, with the staged command in the place of the installed one."""
import pytest
import yaml
from conftest import ROOT, STAGE, TESTS, environment, run

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
JOB = f"python3 {TESTS / 'cli/job.py'}"


@pytest.fixture
def action(tmp_path):
    """Runs the check with these inputs; its outputs, and the summary."""
    def action(code=0, **inputs):
        step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "check")
        given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
        of = lambda text: given[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        summary, outputs = tmp_path / "summary", tmp_path / "outputs"
        env = environment(**{name: of(text) for name, text in step["env"].items()}, GITHUB_STEP_SUMMARY=summary, GITHUB_OUTPUT=outputs,
                          GITHUB_RUN_ID=1, RUNNER_TEMP=tmp_path, HOME=tmp_path, WEIR_RING="64K")
        env["PATH"] = f"{STAGE / 'bin'}:{env['PATH']}"
        for file in (summary, outputs):
            file.unlink(missing_ok=True)
        # As a runner calls it.
        done = run("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"], env=env, cwd=tmp_path, code=code)
        lines = outputs.read_text().splitlines() if outputs.exists() else []
        return dict(line.split("=", 1) for line in lines), summary.read_text() if summary.exists() else "", done.stderr
    return action


def test_a_job_that_fits_passes_and_its_recording_is_the_next_baseline(action):
    outputs, summary, _ = action(run=f"{JOB} well", **{"max-peak": "128MiB"})
    assert "### `job.py well`" in summary and ":x:" not in summary
    outputs, summary, _ = action(run=f"{JOB} well", baseline=outputs["recording"])
    assert "**peak**" in summary and ":x:" not in summary and outputs["markdown"].endswith("weir.md")


def test_a_peak_above_the_limit_fails_and_says_so(action):
    _, summary, error = action(code=3, run=f"{JOB} well", **{"max-peak": "64MiB"})
    assert ":x: at most 64.0 MiB" in summary and "more than 64.0 MiB" in error


def test_a_job_that_runs_out_fails_with_its_own_code_and_its_report(action):
    _, summary, _ = action(code=1, run=f"{JOB} oom", cap="256MiB")
    assert "ran out of GPU memory" in summary and "| live | blocks |" in summary


def test_a_command_without_a_gpu_is_no_success(action):
    _, summary, error = action(code=1, run="true")
    assert summary == "" and "used no GPU" in error
