"""What is installed: completions in their shells, manual pages, the wheel, the Debian package, examples of deployment."""
import json
import os
import pathlib
import shutil
import sys
import tomllib

import pytest
import yaml
from actors import JOB, surroundings
from conftest import ROOT, STAGE, environment, need, run, under_weir, weir


@pytest.fixture(scope="module")
def shells(tmp_path_factory):
    """Runs a shell of which the completions are in a file; both paths."""
    folder = tmp_path_factory.mktemp("shells")

    def prepared(shell):
        need(shell)
        script = folder / f"weir.{shell}"
        script.write_text(weir("completions", shell).stdout)
        return script
    return prepared


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_takes_its_completions(shells, shell):
    script = shells(shell)
    assert "WEIR_COMPLETE" in script.read_text()
    run(shell, "-n", script)


def with_weir(folder):
    """The environment of a shell that finds the command."""
    return environment(**{**surroundings(folder), "PATH": f"{STAGE / 'bin'}:{os.environ['PATH']}"})


def test_bash_completes_a_command(shells, tmp_path):
    line = f'source {shells("bash")}; COMP_WORDS=(weir me); COMP_CWORD=1; COMP_TYPE=9; _clap_complete_weir weir me weir; echo "${{COMPREPLY[@]}}"'
    assert run("bash", "-c", line, env=with_weir(tmp_path)).stdout.split() == ["metrics"]


def test_fish_completes_an_option(shells, tmp_path):
    done = run("fish", "-c", f"source {shells('fish')}; complete -C 'weir top --'", env=with_weir(tmp_path))
    assert "--interval" in done.stdout


def test_man_shows_every_page_without_a_warning(tmp_path):
    need("man", "man-db")
    weir("man", "--out", tmp_path)
    pages = sorted(tmp_path.glob("*.1"))
    assert len(pages) >= 6
    for page in pages:
        done = run("man", "--warnings", "-E", "UTF-8", "-l", page, env=environment(**{**surroundings(tmp_path), "MANWIDTH": 80}))
        sections = [line for line in done.stdout.splitlines() if line[:1].isupper()]
        assert done.stderr == "" and "EXTRA" not in sections
        assert {"SYNOPSIS", "OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES"} <= set(sections), (page, sections)


def package(kind, folder):
    return pathlib.Path(run(ROOT / "scripts/package", kind, folder, env=dict(os.environ), timeout=1800).stdout.strip())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """An environment with the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", package("wheel", folder), timeout=300)
    return venv


@pytest.fixture(scope="module")
def deb(tmp_path_factory):
    return package("deb", tmp_path_factory.mktemp("deb"))


@pytest.fixture(scope="module")
def unpacked(deb):
    """A folder with what the Debian package has."""
    run("dpkg-deb", "-x", deb, deb.parent / "root")
    return deb.parent / "root"


@pytest.fixture(params=["wheel", "deb"])
def placed(request):
    """Where a package has put its files: the command, the library, the virtual GPU."""
    if request.param == "wheel":
        venv = request.getfixturevalue("wheel")
        [home] = venv.glob("lib/python*/site-packages/weir")
        return venv / "bin/weir", home / "lib/libweir.so", home / "vgpu"
    prefix = request.getfixturevalue("unpacked") / "usr"
    return prefix / "bin/weir", prefix / "lib/weir/libweir.so", prefix / "lib/weir/vgpu"


def test_an_installed_weir_finds_its_library(placed, tmp_path):
    command, library, vgpu = placed
    out = run(command, "doctor", env=environment(**{**surroundings(tmp_path), "LD_LIBRARY_PATH": vgpu})).stdout
    assert "No problem found" in out and str(library.resolve()) in out


def test_an_installed_weir_finds_its_virtual_gpu(placed, tmp_path):
    env = environment(**{**surroundings(tmp_path), "BATCH": 2})
    out = run(placed[0], "plan", "--gpu", "1GiB", "--context", "64MiB", "--no-confirm", "--", *JOB, "batch", env=env).stdout
    assert "at most 112.0 MiB live" in out


def test_pip_takes_the_wheel_away_whole(tmp_path):
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", package("wheel", tmp_path), timeout=300)
    ours = lambda: [path for path in venv.rglob("*") if path.is_file() and "weir" in str(path.relative_to(venv))]
    assert ours()
    run(venv / "bin/pip", "uninstall", "-q", "-y", "weir-gpu")
    assert ours() == []


def test_the_wheel_brings_its_modules_and_the_plugin(wheel):
    code = "import weir, importlib.metadata as m; print(weir.__file__, [e.value for e in m.distribution('weir-gpu').entry_points])"
    out = run(wheel / "bin/python", "-c", code, cwd=wheel).stdout
    assert out.startswith(str(wheel)) and "weir.pytest_plugin" in out
    assert run(wheel / "bin/python", "-m", "weir", "--version", cwd=wheel).stdout.startswith("weir ")


def test_a_package_has_the_same_bytes_twice(deb, tmp_path):
    assert package("deb", tmp_path).read_bytes() == deb.read_bytes()


AWKWARD = "my apps:v1; $LIB"


@pytest.fixture
def awkward(tmp_path):
    """A stage below a folder whose name the loader's variables cannot hold."""
    home = tmp_path / AWKWARD / "weir"
    shutil.copytree(STAGE, home, ignore=shutil.ignore_patterns("tests*", "*-faults", "check"), symlinks=True)
    return home


def runs_under_a_cap(home, folder, **more):
    """Takes all of a device of 1 GiB, under a cap of 64 MiB, by the command of that home; what it got and the LD_PRELOAD that it had."""
    show = "import os; print(os.environ['LD_PRELOAD'])"
    env = environment(**{**surroundings(folder), "VGPU_BACKING": "none", **more})
    job = [home / "bin/weir", "run", "--quiet", "--vgpu", "1GiB", "--cap", "64MiB", "--", sys.executable]
    preload = run(*job, "-c", show, env=env).stdout.strip()
    return json.loads(run(*job, ROOT / "tests/caps/limits.py", "takes_all", env=env).stdout)["physical"], preload


def test_a_path_that_the_loader_cannot_take_is_reached_by_a_link(awkward, tmp_path):
    taken, preload = runs_under_a_cap(awkward, tmp_path)
    assert 48 << 20 <= taken <= 64 << 20
    assert not set(preload) & set(" :;$") and pathlib.Path(preload).resolve() == awkward / "lib/libweir.so"
    assert os.stat(pathlib.Path(preload).parent.parent).st_mode & 0o777 == 0o700
    # A settings file beside the library holds, too: its folder is the real one.
    (awkward / "lib/weir.conf").write_text("WEIR_CAP=32MiB\n")
    env = environment(**{**surroundings(tmp_path), "VGPU_BACKING": "none", "LD_LIBRARY_PATH": awkward / "vgpu"})
    done = run(awkward / "bin/weir", "run", "--quiet", "--vgpu", "1GiB", "--", sys.executable, ROOT / "tests/caps/limits.py", "takes_all", env=env)
    assert json.loads(done.stdout)["physical"] <= 32 << 20


def test_no_link_is_made_where_others_can_change_it(awkward, tmp_path):
    state = tmp_path / "state/weir/links"
    state.mkdir(parents=True)
    state.chmod(0o777)
    _, preload = runs_under_a_cap(awkward, tmp_path, XDG_STATE_HOME=tmp_path / "state")
    assert not preload.startswith(str(tmp_path / "state")) and not list(state.iterdir())


def test_the_name_of_the_library_is_enough_after_the_debian_package(unpacked, tmp_path):
    [link] = unpacked.glob("usr/lib/*-linux-gnu/libweir.so")
    env = under_weir(tmp_path / "journals", LD_PRELOAD="libweir.so", LD_LIBRARY_PATH=f"{link.parent}:{unpacked}/usr/lib/weir/vgpu",
                     VGPU_MEM="1GiB", VGPU_BACKING="none", WEIR_CAP="64MiB")
    assert json.loads(run(sys.executable, ROOT / "tests/caps/limits.py", "takes_all", env=env).stdout)["physical"] <= 64 << 20


def allowed_by(expression, names):
    """Whether a licence expression can be kept with these."""
    expression = expression.replace("(", " ( ").replace(")", " ) ").replace(" WITH ", "+with+")
    words = {"AND": "and", "OR": "or", "(": "(", ")": ")"}
    known = {name.replace(" WITH ", "+with+") for name in names}
    return eval(" ".join(words.get(word, str(word in known)) for word in expression.split()))


def test_the_bill_of_materials_has_what_is_linked():
    bill = json.loads(run(ROOT / "scripts/sbom", env=dict(os.environ)).stdout)
    names = {component["name"] for component in bill["components"]}
    assert {"weir-shim", "weir-pool", "libc"} <= names and not {"proptest", "insta", "loom"} & names
    known = {component["bom-ref"] for component in bill["components"]}
    allowed = tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"]
    assert all(allowed_by(component["licenses"][0]["expression"], allowed) for component in bill["components"])
    assert all(set(one["dependsOn"]) <= known for one in bill["dependencies"])


def test_the_debian_package_has_its_fields(deb):
    fields = run("dpkg-deb", "-f", deb, "Package", "Version", "Depends").stdout
    assert "Package: weir" in fields and "libc6" in fields


@pytest.mark.parametrize("path", ["usr/share/man/man1/weir-top.1.gz", "usr/share/bash-completion/completions/weir"])
def test_the_debian_package_has_manual_and_completions(unpacked, path):
    assert (unpacked / path).exists()


@pytest.mark.parametrize("path", sorted((ROOT / "examples/deploy").glob("*.yaml")), ids=lambda path: path.stem)
def test_mounts_of_a_pod_have_volumes(path):
    documents = list(yaml.safe_load_all(path.read_text()))
    names = [volume["name"] for document in documents for volume in document["spec"]["volumes"]]
    mounts = [mount["name"] for document in documents for container in document["spec"]["containers"] + document["spec"].get("initContainers", [])
              for mount in container["volumeMounts"]]
    assert documents[0]["kind"] == "Pod" and mounts and set(mounts) == set(names)


KUBERNETES = ROOT / "examples/deploy/kubernetes.yaml"


def test_the_init_container_copies_what_the_job_preloads(tmp_path):
    """The command is run, on the layout that the Debian package has."""
    pod = yaml.safe_load(KUBERNETES.read_text())["spec"]
    image, volume = tmp_path / "image", tmp_path / "volume"
    (image / "usr/lib/weir/vgpu").mkdir(parents=True)
    (image / "usr/lib/weir/libweir.so").write_text("the library")
    volume.mkdir()
    at = lambda word: f"{image}{word}" if word.startswith("/usr/") else word.replace("/weir", str(volume), 1) if word.startswith("/weir") else word
    command = [at(word) for word in pod["initContainers"][0]["command"]]
    (image / "usr/bin").mkdir()
    (image / "usr/bin/weir").write_text("the command")
    run(*command)
    variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    preloaded = variables["LD_PRELOAD"]
    assert preloaded.startswith("/weir/") and (volume / preloaded.removeprefix("/weir/")).read_text() == "the library"


def test_the_sidecar_ends_with_the_job():
    sidecar = yaml.safe_load(KUBERNETES.read_text())["spec"]["initContainers"][1]
    assert sidecar["restartPolicy"] == "Always" and sidecar["command"][:2] == ["weir", "metrics"]


def test_kubectl_builds_the_base(tmp_path):
    need("kubectl", "kubernetes-client")
    built = list(yaml.safe_load_all(run("kubectl", "kustomize", ROOT / "examples/deploy/kubernetes").stdout))
    kinds = {one["kind"]: one for one in built}
    assert set(kinds) == {"Namespace", "ConfigMap", "DaemonSet"}
    pod = kinds["DaemonSet"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["conf"]["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
    mounts = [mount["name"] for one in pod["initContainers"] + pod["containers"] for mount in one["volumeMounts"]]
    assert set(mounts) == set(volumes)
    # The file that it installs is one that the library takes: run the install command, then a job beside the file.
    install = pod["initContainers"][0]["command"]
    (tmp_path / "usr/lib/weir").mkdir(parents=True)
    (tmp_path / "host/opt/weir").mkdir(parents=True)
    (tmp_path / "host/var/lib/weir").mkdir(parents=True)
    (tmp_path / "etc/weir").mkdir(parents=True)
    (tmp_path / "etc/weir/weir.conf").write_text(kinds["ConfigMap"]["data"]["weir.conf"])
    shutil.copy(STAGE / "lib/libweir.so", tmp_path / "usr/lib/weir")
    run(*install[:2], install[2].replace("/host/", f"{tmp_path}/host/").replace(" /usr/", f" {tmp_path}/usr/").replace(" /etc/", f" {tmp_path}/etc/"))
    assert (tmp_path / "host/var/lib/weir").stat().st_mode & 0o7777 == 0o1777
    job = under_weir(tmp_path, LD_PRELOAD=tmp_path / "host/opt/weir/libweir.so", VGPU_MEM="1GiB", VGPU_BACKING="none", WEIR_RING="64K")
    taken = json.loads(run(sys.executable, ROOT / "tests/caps/limits.py", "takes_all", env=job).stdout)["physical"]
    assert 480 << 20 <= taken <= 512 << 20


PROLOG = ROOT / "examples/deploy/slurm-task-prolog.sh"


@pytest.mark.parametrize("script", [PROLOG, *(ROOT / "scripts" / name for name in ("package", "portable.sh", "release", "build"))],
                         ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script):
    need("shellcheck")
    run("shellcheck", "-x", "-s", "bash", "-e", "SC1091", script)


def prolog(**env):
    return run("bash", PROLOG, env={"PATH": os.environ["PATH"], "HOME": "/h", "SLURM_JOB_ID": "7", **env}).stdout


def test_the_prolog_gives_a_share_of_the_gpu():
    library = str(STAGE / "lib/libweir.so")
    # What a task has was read off Slurm's own (tests/fleet).
    for shards, gpus, share in (("3", "0", 37), ("a100:2", "1", 25), ("4", "0,1", 25)):
        out = prolog(SLURM_SHARDS_ON_NODE=shards, CUDA_VISIBLE_DEVICES=gpus, SLURMD_NODENAME="n1", WEIR_LIBRARY=library)
        for line in (f"export WEIR_CAP={share}%\n", "export WEIR_GROUP=slurm-7-n1\n", f"export LD_PRELOAD={library}\n"):
            assert line in out
    assert "WEIR_CAP" not in prolog(SLURM_SHARDS_ON_NODE="many", WEIR_LIBRARY=library)
    assert "LD_PRELOAD" not in prolog(LD_PRELOAD=library, WEIR_LIBRARY=library), "a step of a batch script has it"


def test_the_prolog_gives_nothing_where_weir_is_missing():
    assert prolog(WEIR_LIBRARY="/nowhere") == ""
