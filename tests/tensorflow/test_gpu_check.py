"""The TensorFlow step of `weir gpu-check`, with a stock TensorFlow: without weir, with its own allocator, with weir's pool."""
import json

from conftest import MIB, environment, on_vgpu, tensorflow, tensorflow_marks, weir

pytestmark = tensorflow_marks()


def test_it_trains_three_times_alike_within_the_budget(tmp_path):
    python, variables = tensorflow()
    file = tmp_path / "file.json.gz"
    env = on_vgpu(**{**variables, "TF_CPP_MIN_LOG_LEVEL": "3", "VGPU_PROFILE": "t4"})
    weir("gpu-check", "--device", "0", "--budget", "2GiB", "--only", "tensorflow", "--python", python, "--out", file, env=env, timeout=620)
    found = json.loads(weir("gpu-check", "--read", file, "--print", "json", env=environment(), quiet=True).stdout)
    lines = {step["step"]: step["lines"][0] for step in found["steps"] if step["step"].startswith("tensorflow")}
    assert set(lines) == {"tensorflow-bare", "tensorflow-keep", "tensorflow-pool"}
    assert all("missing" not in line and line["last"] == lines["tensorflow-bare"]["last"] for line in lines.values()), lines
    # Two allocators, and what the train step holds at its peak.
    peaks = [line["peak"] for line in lines.values() if line["peak"]]
    assert peaks and all(MIB < peak < 2048 * MIB for peak in peaks), lines
    assert found["findings"] == []
    assert "fifty steps of TensorFlow" in weir("gpu-check", "--read", file, env=environment(), quiet=True).stdout
