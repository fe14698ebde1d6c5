"""Jobs in containers: podman and crun, with the spec of `weir cdi`. The container's root is an overlay of this machine's, so
that it has Python, and what it writes outside the mounted folders is gone with it."""
import json
import os

import pytest
from conftest import GIB, MIB, ROOT, TESTS, environment, need, run, tensorflow, tensorflow_marks, weir

CAP = 64 * MIB
TAKES_ALL = ["python3", TESTS / "caps/limits.py", "takes_all"]
PODMAN = TESTS / "containers/podman"


@pytest.fixture(scope="module", autouse=True)
def tools():
    need("podman", "podman", "crun")
    need("crun")


class Machine:
    """A folder with journals, CDI specs and podman's storage."""

    def __init__(self, folder):
        self.folder, self.journals = folder, folder / "journals"
        self.journals.mkdir()
        # As the DaemonSet leaves it: every user of a container makes a folder of its own.
        self.journals.chmod(0o1777)
        self.termination = folder / "termination-log"
        self.termination.write_text("")
        (folder / "cdi").mkdir()
        spec = weir("cdi", "--cap", "64MiB", "--cap", "1GiB", "--dir", self.journals, "--vgpu", "2GiB").stdout
        (folder / "cdi/weir.json").write_text(spec)

    def run(self, *words, device="64MiB", code=0):
        """Runs a command in a container with a device of the spec."""
        return run(PODMAN, self.folder, "--device", f"weir/cap={device}", "-v", f"{self.termination}:/dev/termination-log",
                   "--env", "VGPU_BACKING=none", "--env", "WEIR_RING=64K", *words, code=code, timeout=600)

    def root(self, *words, **how):
        return self.run("--rootfs", "/:O", *words, **how)

    def runs(self):
        return json.loads(weir("list", "--json", "--dir", self.journals).stdout)


@pytest.fixture
def machine(tmp_path):
    # Users of containers enter it.
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if os.stat(folder).st_uid == os.getuid() and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    return Machine(tmp_path)


def test_a_container_is_capped_recorded_and_says_why_it_died(machine):
    found = json.loads(machine.root(*TAKES_ALL).stdout)
    assert found["cuInit"] == 0 and CAP - 16 * MIB <= found["physical"] <= CAP
    [recorded] = machine.runs()
    assert recorded["oom"] >= 1 and recorded["devices"][0]["cap"] == CAP
    message = machine.termination.read_text()
    assert message.startswith("weir: GPU OUT OF MEMORY") and "cap" in message and len(message.encode()) <= 4096
    report = weir("report", "--dir", machine.journals, recorded["run"]).stdout
    assert "CAP" in report


def test_without_a_cap_a_container_is_recorded(machine):
    found = json.loads(machine.root(*TAKES_ALL, device="none").stdout)
    assert found["physical"] > GIB and len(machine.runs()) == 1


def test_another_user_in_the_container_has_a_folder_of_its_own(machine):
    found = json.loads(machine.run("--user", "1234:1234", "--rootfs", "/:O", *TAKES_ALL).stdout)
    assert CAP - 16 * MIB <= found["physical"] <= CAP
    assert [path.name for path in machine.journals.iterdir()] == ["weir-1234"] and len(machine.runs()) == 1


def test_a_file_beside_the_library_holds_where_the_environment_is_lost(machine):
    conf = machine.folder / "weir.conf"
    conf.write_text("WEIR_CAP=32MiB\nWEIR_DIR=/var/lib/weir\n")
    lost = ["env", "-i", "PATH=/usr/bin:/bin", "LD_PRELOAD=/opt/weir/libweir.so", "LD_LIBRARY_PATH=/opt/weir/vgpu", "VGPU_MEM=2GiB",
            "VGPU_BACKING=none"]
    mounted = ["-v", f"{conf}:/opt/weir/weir.conf:ro", "--rootfs", "/:O"]
    found = json.loads(machine.run(*mounted, *lost, *TAKES_ALL).stdout)
    assert 16 * MIB <= found["physical"] <= 32 * MIB
    # Root's file is a ceiling over what the container says.
    found = json.loads(machine.run(*mounted, *TAKES_ALL, device="1GiB").stdout)
    assert 16 * MIB <= found["physical"] <= 32 * MIB


def test_the_library_holds_where_hamis_library_lies(machine):
    """As HAMi's device plugin mounts it: by name and place, in every process by ld.so.preload, with its variable and no other."""
    preload = machine.folder / "ld.so.preload"
    preload.write_text("/usr/local/vgpu/libvgpu.so\n")
    spec = json.loads((machine.folder / "cdi/weir.json").read_text())
    edits = spec["containerEdits"]
    edits["env"] = [one for one in edits["env"] if not one.startswith("LD_PRELOAD=")]
    (library,) = [mount["hostPath"] for mount in edits["mounts"] if mount["hostPath"].endswith("libweir.so")]
    (machine.folder / "cdi/weir.json").write_text(json.dumps(spec))
    mounted = ["-v", f"{library}:/usr/local/vgpu/libvgpu.so:ro", "-v", f"{preload}:/etc/ld.so.preload:ro"]
    found = json.loads(machine.run(*mounted, "--env", "CUDA_DEVICE_MEMORY_LIMIT_0=96m", "--rootfs", "/:O", *TAKES_ALL, device="none").stdout)
    assert 80 * MIB <= found["physical"] <= 96 * MIB
    # The variable is lost, the library is not: the file beside it holds.
    conf = machine.folder / "weir.conf"
    conf.write_text("WEIR_CAP=32MiB\n")
    lost = ["env", "-i", "PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=/opt/weir/vgpu", "VGPU_MEM=2GiB", "VGPU_BACKING=none", "WEIR_DIR=/var/lib/weir"]
    found = json.loads(machine.run(*mounted, "-v", f"{conf}:/usr/local/vgpu/weir.conf:ro", "--rootfs", "/:O", *lost, *TAKES_ALL, device="none").stdout)
    assert 16 * MIB <= found["physical"] <= 32 * MIB


def test_a_cap_that_the_spec_does_not_offer_is_refused(machine):
    done = machine.root("true", device="65MiB", code=None)
    assert done.returncode and "weir/cap=65MiB" in done.stderr


@pytest.mark.parametrize("release", [pytest.param(None, marks=tensorflow_marks())])
def test_stock_tensorflow_in_a_container(machine, release):
    python, given = tensorflow()
    passed = [word for name, value in given.items() if name not in ("LD_LIBRARY_PATH", "XLA_FLAGS") for word in ("--env", f"{name}={value}")]
    flags = ["--env", "XLA_FLAGS=--xla_gpu_cuda_data_dir=/opt/weir/vgpu/cuda"]
    done = machine.run(*passed, *flags, "--rootfs", "/:O", python, ROOT / "examples/oom/kept_in_list.py", device="1GiB", code=None)
    assert done.returncode != 0 and "GPU OUT OF MEMORY" in machine.termination.read_text(), done.stderr
    oom = [one for one in machine.runs() if one["oom"]]
    assert len(oom) == 1 and oom[0]["devices"][0]["cap"] == GIB
    report = weir("report", "--dir", machine.journals, oom[0]["run"]).stdout
    assert "GROWTH" in report and "kept_in_list.py" in report
