"""Each way to install weir on each system that can be made here: install, doctor, a capped job, its report. As root, with a
network: systems are made once by debootstrap, into the cache folder. Prints a table, also to target/install.tsv.

A system is its glibc: 2.27 stands in for RHEL 8 (2.28), whose packages cannot be had here."""
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import ROOT, environment, need, run, tensorflow

pytestmark = pytest.mark.long

CACHE = pathlib.Path(os.environ["WEIR_CACHE"])
UBUNTU, DEBIAN = "http://archive.ubuntu.com/ubuntu", "http://deb.debian.org/debian"
INSIDE = pathlib.Path(__file__).with_name("inside")
# Name: suite, mirror, Python's command, packages of it.
SYSTEMS = {
    "Ubuntu 16.04, glibc 2.23": ("xenial", UBUNTU, "python3", "python3"),
    "Ubuntu 18.04, glibc 2.27": ("bionic", UBUNTU, "python3.8", "python3.8 python3.8-venv python3-distutils python-pip-whl"),
    "Debian 11, glibc 2.31": ("bullseye", DEBIAN, "python3", "python3-venv"),
    "Ubuntu 22.04, glibc 2.35": ("jammy", UBUNTU, "python3", "python3-venv"),
    "Debian 12, glibc 2.36": ("bookworm", DEBIAN, "python3", "python3-venv"),
    "Debian 13, glibc 2.41": ("trixie", DEBIAN, "python3", "python3-venv"),
}
PYTHONS, OTHERS = ["pip", "pipx", "uv", "target"], ["deb", "rpm", "tar", "odd"]
# Its Python is 3.5.
NEVER = {("xenial", way) for way in PYTHONS}
STEPS = ["install", "version", "doctor", "job", "report", "env", "name", "import", "tensorflow"]
CELLS = [(name, way) for name, (suite, *_) in SYSTEMS.items() for way in PYTHONS + OTHERS if (suite, way) not in NEVER]


@pytest.fixture(scope="session")
def packages():
    """A folder with every package for this processor, as a release has them."""
    folder = ROOT / "target/packages-portable"
    shutil.rmtree(folder, ignore_errors=True)
    run(ROOT / "scripts/build", "--for", "x86_64", env=dict(os.environ), timeout=3600)
    for kind in ("wheel", "deb", "rpm", "tar"):
        run(ROOT / "scripts/package", kind, "--for", "x86_64", folder, env=dict(os.environ), timeout=1800)
    return folder


@pytest.fixture(scope="session")
def root_of():
    """Makes a system."""
    need("debootstrap", "debootstrap")

    def made(name):
        suite, mirror, _, included = SYSTEMS[name]
        folder = CACHE / f"root-{suite}"
        if not (folder / "ok").exists():
            shutil.rmtree(folder, ignore_errors=True)
            # Without the keys of the other distribution: what is installed here is thrown at nobody.
            ubuntu = mirror == UBUNTU
            run("debootstrap", "--variant=minbase", *(["--no-check-gpg"] if ubuntu else []), suite, folder, mirror,
                env=dict(os.environ), timeout=3600, quiet=True)
            # By the system's own apt: debootstrap (1.0.128) installs nothing of a second suite or component.
            sources = [f"deb [trusted=yes] {mirror} {one} main universe" for one in (suite, f"{suite}-updates")] if ubuntu else [f"deb {mirror} {suite} main"]
            (folder / "etc/apt/sources.list").write_text("\n".join(sources) + "\n")
            shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
            install = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {included} ca-certificates && apt-get clean"
            run("chroot", folder, "sh", "-ec", install, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}, timeout=3600, quiet=True)
            (folder / "ok").touch()
        return folder
    return made


@pytest.fixture(scope="session")
def table():
    """What each cell came to; printed at the end."""
    rows = {}
    yield rows
    lines = ["\t".join(["system", "way", *STEPS])]
    lines += ["\t".join([*cell, *(steps.get(step, "") for step in STEPS)]) for cell, steps in rows.items()]
    (ROOT / "target/install.tsv").write_text("\n".join(lines) + "\n")
    print("\n".join(line.expandtabs(26) for line in lines))


@pytest.mark.parametrize("name, way", CELLS, ids=lambda value: value.split(",")[0].replace(" ", "-"))
def test_installs_caps_and_reports(name, way, packages, root_of, table):
    if os.geteuid() != 0:
        pytest.fail("needs root: it makes systems and mounts")
    root = root_of(name)
    done = run(INSIDE, root, packages, way, SYSTEMS[name][2], env=environment(), timeout=900, code=None)
    steps = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    table[name, way] = {step: "ok" if said == "ok" else "FAILED" for step, said in steps.items()}
    missing = {"install", "version", "doctor", "job", "report", "env"} - steps.keys()
    wrong = {step: said for step, said in steps.items() if said != "ok"}
    assert not missing and not wrong, (missing, wrong)


@pytest.mark.tensorflow
def test_stock_tensorflow_on_an_older_glibc(packages, root_of, table):
    """The modules of an environment for CPython 3.9, by the Python 3.9 of Debian 11."""
    python = pathlib.Path(tensorflow(["2.15.1"])[0])
    [modules] = python.parent.parent.glob("lib/python3.9/site-packages")
    name = "Debian 11, glibc 2.31"
    done = run(INSIDE, root_of(name), packages, "pip", "python3", modules, env=environment(), timeout=1800, code=None)
    steps = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    table[name, "pip, TensorFlow"] = {step: "ok" if said == "ok" else "FAILED" for step, said in steps.items()}
    assert steps.get("tensorflow") == "ok", steps


def test_a_library_for_a_newer_glibc_is_noticed(packages, tmp_path):
    """The guard of the tag: what scripts/build makes for this machine is refused."""
    if tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))) < (2, 18):
        pytest.skip("this machine's glibc is as old as the goal")
    [wheel] = packages.glob("*.whl")
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(wheel, unpacked, "zip")
    shutil.copy(ROOT / "target/weir/lib/libweir.so", unpacked / "weir/lib/libweir.so")
    shutil.make_archive(str(tmp_path / "made"), "zip", unpacked)
    renamed = (tmp_path / "made.zip").rename(tmp_path / wheel.name)
    python = next(CACHE.glob("venv-release-*/bin/python"))
    done = subprocess.run([python, ROOT / "scripts/audit", renamed], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "not manylinux_2_17_x86_64" in done.stdout, done.stdout
