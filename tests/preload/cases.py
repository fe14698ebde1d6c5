#!/usr/bin/env python3
"""Runs odd processes with and without libweir.so and compares everything they show.

usage: tests/preload/cases.py --list | --exact NAME

Builds the programs of this folder with cc, runs each on the virtual GPU bare and under the preload (as a pass-through,
WEIR_POOL=off, and once more with pool and journal), and wants the same output, the same errors and the same exit status;
under the preload weir must also have seen the calls (a fixture passes what weir says of itself on descriptor 3). Other
cases: faults inside weir, bad environments, everyday programs that must not notice, NVIDIA's own runtime libraries
(from PyPI: not in the list, see test_runtimes.py), the symbols that the library exports, `weir doctor`, and the assembly
of the other processor. The suite `preload` of weir-tests runs each case as a trial.
"""
import glob, json, os, pathlib, re, resource, shutil, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STAGE = pathlib.Path(os.environ.get("STAGE") or ROOT / "target/weir")
CACHE = pathlib.Path(os.environ.get("WEIR_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weir")
WEIR, FAULTY, VGPU, COMMAND = STAGE / "lib/libweir.so", STAGE / "lib-faults/libweir.so", STAGE / "vgpu", STAGE / "bin/weir"
WORK = pathlib.Path(tempfile.gettempdir()) / f"weir-preload-{os.getpid()}"
PATIENCE = 120
MODE = "off"  # WEIR_POOL and WEIR_JOURNAL of what runs under the preload; None: as a user would have it


def sh(*args, **more):
    return subprocess.run([str(a) for a in args], check=True, **more)


def install(command, package):
    """A program that a test needs is installed if it is not there; no test is skipped for want of one."""
    if not shutil.which(command):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        sh("apt-get", "update", "-qq", **quiet)
        sh("apt-get", "install", "-y", "-qq", package, **quiet)


def cc(out, *args):
    sh("cc", "-O1", "-w", "-pthread", f"-I{HERE}", "-o", out, *args)
    return out


def library(name, *flags, source=None, folder=None):
    folder = WORK / (folder or "lib")
    folder.mkdir(exist_ok=True)
    return cc(folder / name, "-shared", "-fPIC", HERE / "libraries" / (source or name.removeprefix("lib").removesuffix(".so") + ".c"), *flags)


class Run:
    """One process: what it printed, how it ended, what weir said of itself."""

    def __init__(self, command, preload=(), paths=(VGPU,), env={}, limit=None, stderr=subprocess.PIPE, home=None):
        read, write = os.pipe()
        spare, clean = os.dup(read), {k: v for k, v in os.environ.items() if not k.startswith(("WEIR_", "VGPU_", "LD_"))}
        os.close(read)
        variables = {**clean, "HOME": str(home or WORK / "home"), "LC_ALL": "C", **{k: str(v) for k, v in env.items()}}
        variables.pop("XDG_STATE_HOME", None)
        if paths: variables["LD_LIBRARY_PATH"] = ":".join(map(str, paths))
        if preload: variables["LD_PRELOAD"] = ":".join(map(str, preload))
        if preload and MODE: variables.update({k: v for k, v in {"WEIR_POOL": MODE, "WEIR_JOURNAL": MODE}.items() if k not in variables})

        def prepare():
            os.dup2(write, 3)
            if limit: limit()
        # Arranged by env(1)-like exec of the program itself: only it and its children get the preload.
        process = subprocess.Popen([str(c) for c in command], env=variables, stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL,
                                   close_fds=True, pass_fds=(3, write), preexec_fn=prepare, cwd=WORK, start_new_session=True)
        os.close(write)
        told = b""
        os.set_blocking(spare, False)
        try:
            import selectors
            pick, parts, open_ends = selectors.DefaultSelector(), {"out": b"", "err": b""}, 0
            for stream, name in ((process.stdout, "out"), (process.stderr, "err"), (spare, "told")):
                if stream is not None:
                    pick.register(stream, selectors.EVENT_READ, name)
            parts["told"] = b""
            import time
            end = time.monotonic() + PATIENCE
            while pick.get_map() and time.monotonic() < end:
                for key, _ in pick.select(1):
                    data = os.read(key.fd, 65536)
                    parts[key.data] += data
                    if not data: pick.unregister(key.fileobj)
                if process.poll() is not None and not pick.select(0): break
            self.hung = process.poll() is None and time.monotonic() >= end
            if self.hung: os.killpg(process.pid, 9)
            self.status = process.wait()
        finally:
            os.close(spare)
        self.out, self.err, told = parts["out"].decode(errors="replace"), parts["err"].decode(errors="replace"), parts["told"].decode(errors="replace")
        lines = [l for l in told.splitlines() if l.startswith("{")]
        self.weir = json.loads(lines[-1]) if lines else None

    def calls(self, symbol):
        hooks = self.weir["driver"]["hooks"] + self.weir["nvml"]["hooks"] if self.weir else []
        return sum(h["calls"] for h in hooks if h["symbol"] == symbol)

    def shown(self):
        return {"out": self.out, "err": self.err, "status": self.status, "hung": self.hung}


passed, failed = 0, []


def check(name, ok, why=""):
    global passed
    if ok:
        passed += 1
        print(f"ok    {name}")
    else:
        failed.append(name)
        print(f"FAIL  {name}\n      {why}".replace("\n", "\n      ") if why else f"FAIL  {name}")
    sys.stdout.flush()


def difference(bare, under):
    import difflib
    a, b = json.dumps(bare, indent=1).replace("\\n", "\n").splitlines(), json.dumps(under, indent=1).replace("\\n", "\n").splitlines()
    return "\n".join(list(difflib.unified_diff(a, b, "bare", "under weir", lineterm="", n=1))[:30])


# name: flags for cc, what weir must have seen, and how to run it
LINKED = ["-L", VGPU, "-l:libcuda.so.1"]
ALLOC = {"cuMemAlloc_v2": 1}
VICTIMS = {
    "fork_then_cuda": dict(sees=ALLOC),
    "cuda_fork_exec": dict(sees=ALLOC),
    "underscore_exit": dict(link=LINKED, sees={"cuMemAlloc_v2": 2}),
    "exit_in_thread": dict(link=LINKED, sees={"cuMemAlloc_v2": 2}),
    "exit_during_call": dict(link=LINKED, sees={"cuMemAlloc_v2": 2}, env={"VGPU_COST": "cuMemAlloc=300ms"}),
    "dlclose_driver": dict(sees={"cuMemAlloc_v2": 3}),
    "second_namespace": dict(sees=ALLOC),
    "main_returns": dict(link=LINKED, sees={"cuMemAlloc_v2": 9}),
    "destructor_frees": dict(link=LINKED, sees={"cuMemFree_v2": 3}),
    "constructor_uses": dict(link=LINKED, sees={"cuMemAlloc_v2": 2}),
    "vfork_exec": dict(link=LINKED, sees={"cuMemAlloc_v2": 2}),
    "signal_in_hook": dict(link=LINKED, sees={"cuMemAlloc_v2": 20001}),
    "many_threads": dict(link=LINKED, sees={"cuMemAlloc_v2": 10001}),
    "cancel_pending": dict(link=LINKED, sees={"cuMemAlloc_v2": 8}, env={"WEIR_CAP": "512MiB", "WEIR_GROUP": "cancel", "WEIR_OOM_TEXT": "off"}),
    "idle_importers": dict(link=LINKED, sees=ALLOC),
    "small_stack": dict(link=LINKED, sees=ALLOC),
    "linked": dict(link=LINKED, sees=ALLOC),
    "lookups": dict(sees={}),
    "proc_address": dict(sees=ALLOC),
    "codes": dict(link=LINKED, sees={"cuMemAlloc_v2": 5, "cuMemGetInfo_v2": 5, "cuMemHostAlloc": 1}),
    "surroundings": dict(link=LINKED, sees=ALLOC),
    "nvml": dict(sees={"nvmlDeviceGetMemoryInfo": 3, "nvmlDeviceGetComputeRunningProcesses_v3": 1}),
    "no_cuda": dict(sees=None),
    "plugin": dict(sees=ALLOC, paths=(VGPU, WORK / "lib")),
}


def compare(name, command, sees, preload=(WEIR,), with_bare=(), **how):
    bare, under = Run(command, preload=with_bare, **how), Run(command, preload=preload, **how)
    if bare.shown() != under.shown():
        return check(name, False, difference(bare.shown(), under.shown()))
    if bare.hung:
        return check(name, False, "hung, with and without")
    for symbol, least in (sees or {}).items():
        if under.calls(symbol) < least:
            return check(name, False, f"weir saw {under.calls(symbol)} of {symbol}, not {least}: {under.weir and under.weir['off']}")
    if sees is not None and not (under.weir and under.weir["off"] is None):
        return check(name, False, f"weir has no effect: {under.weir and under.weir['off']}")
    check(name, True)
    return under


def build(name):
    return cc(WORK / name, HERE / "programs" / f"{name}.c", *VICTIMS[name].get("link", []), "-ldl")


def fixture(name):
    how = VICTIMS[name]
    program = build(name)
    small = {} if MODE else {"WEIR_RING": "64,512", "WEIR_OOM_TEXT": "off"}
    compare(name, [program], how["sees"], env={**small, **how.get("env", {})}, paths=how.get("paths", (VGPU,)))


def neighbours():
    """Beside other preload libraries, before and behind them."""
    other, wrapper = library("libother.so"), library("libdlsym_wrapper.so")
    install("jemalloc-config", "libjemalloc-dev")
    jemalloc = glob.glob("/usr/lib/*/libjemalloc.so.2")[0]
    cc(WORK / "wrapped", HERE / "programs/wrapped.c", *LINKED)
    # Behind weir, the wrapper of a driver function is not on the road of linked calls: weir goes to
    # the driver itself. So what that library counted is not compared, all else is.
    first = compare("another preload before weir", [WORK / "wrapped"], ALLOC, preload=(other, WEIR), with_bare=(other,))
    bare, behind = Run([WORK / "wrapped"], preload=(other,)), Run([WORK / "wrapped"], preload=(WEIR, other))
    check("another preload behind weir", (bare.out, bare.status) == (behind.out, behind.status) and behind.calls("cuMemAlloc_v2") == 1, difference(bare.shown(), behind.shown()))
    compare("a wrapper of dlsym before weir", [WORK / "lookups"], {}, preload=(wrapper, WEIR), with_bare=(wrapper,))
    compare("a wrapper of dlsym behind weir", [WORK / "lookups"], {}, preload=(WEIR, wrapper), with_bare=(wrapper,))
    through = Run([WORK / "dlclose_driver"], preload=(wrapper, WEIR))
    check("a wrapper of dlsym does not lead around weir", through.calls("cuMemAlloc_v2") == 3)
    for name in ("many_threads", "destructor_frees", "fork_then_cuda"):
        for order in ((jemalloc, WEIR), (WEIR, jemalloc)):
            place = "before" if order[0] == jemalloc else "behind"
            compare(f"jemalloc {place} weir: {name}", [WORK / name], ALLOC, preload=order, with_bare=(jemalloc,))
    compare("weir twice", [WORK / "linked"], ALLOC, preload=(WEIR, WEIR))

    library("libtrampolines.so")
    cc(WORK / "trampolines", HERE / "programs/trampolines.c")
    compare("trampolines of the driver's names, as in TensorFlow", [WORK / "trampolines"], ALLOC, paths=(VGPU, WORK / "lib"))
    bare, under = Run([WORK / "trampolines"], paths=(WORK / "lib",)), Run([WORK / "trampolines"], preload=(WEIR,), paths=(WORK / "lib",))
    check("trampolines without a driver", bare.shown() == under.shown() and "4242" in bare.out, difference(bare.shown(), under.shown()))


def build_drivers():
    soname = "-Wl,-soname,libcuda.so.1"
    (WORK / "versions").write_text("DRIVER_1 { cu*; };\n")
    library("libcuda.so.1", soname, f"-Wl,--version-script={WORK / 'versions'}", source="strange_driver.c", folder="versioned")
    library("libcuda.so.1", soname, source="strange_driver.c", folder="strange")
    library("libcuda.so.1", soname, "-DCALLS_BACK", source="strange_driver.c", folder="calling")
    for name in ("versioned_lookups", "strange_driver", "reentrant", "no_driver"):
        cc(WORK / name, HERE / "programs" / f"{name}.c")
    cc(WORK / "cancelled", HERE / "programs/cancelled.c", "-L", WORK / "strange", "-l:libcuda.so.1")


def drivers():
    """Drivers that the virtual GPU is not, and none at all."""
    compare("dlvsym and a driver with symbol versions", [WORK / "versioned_lookups"], {"cuMemAlloc_v2": 1}, paths=(WORK / "versioned",))
    run = compare("a driver that the headers do not know", [WORK / "strange_driver"], {"cuMemAlloc_v2": 1, "cuMemFree_v2": 1, "cuMemAllocAsync": 1, "cuMemAllocAsync_ptsz": 2}, paths=(WORK / "strange",))
    if run:
        check("its unknown functions are listed", run.weir["driver"]["unknown"] == ["cuMemBrandNew"] and run.weir["driver"]["version"] == 99990, run.weir["driver"])
    compare("a driver whose initialiser calls back", [WORK / "reentrant"], {"cuMemAlloc_v2": 8}, paths=(WORK / "calling",))
    compare("a thread cancelled inside the driver", [WORK / "cancelled"], {"cuCtxSynchronize": 1}, paths=(WORK / "strange",))
    compare("no driver", [WORK / "no_driver"], None, paths=())
    sh("cc", "-static", "-w", "-o", WORK / "static", "-x", "c", "-", input=b'#include <stdio.h>\nint main(void){puts("static");}')
    compare("a static program", [WORK / "static"], None)
    python = "import ctypes; d=ctypes.CDLL('libcuda.so.1'); p=ctypes.c_uint64(); print(d.cuInit(0), d.cuMemAlloc_v2(ctypes.byref(p), 4096), d.cuMemGetInfo_v2(None, None))"
    compare("Python by ctypes", [sys.executable, "-c", python], None)


def runtimes():
    """NVIDIA's own runtime: every function that it asks the driver for and weir has gets weir's."""
    for version, spec, home in (("12", "nvidia-cuda-runtime-cu12==12.9.79", "nvidia/cuda_runtime/lib"), ("13", "nvidia-cuda-runtime==13.4.92", "nvidia/cu13/lib")):
        folder = CACHE / "headers" / spec.replace("==", "-")
        if not folder.exists():
            sh(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, spec)
        lib = folder / home
        cc(WORK / f"static_runtime{version}", HERE / "programs/static_runtime.c", lib / "libcudart_static.a", "-lrt", "-ldl", "-lstdc++")
        cc(WORK / "shared_runtime", HERE / "programs/shared_runtime.c")
        env = {"VGPU_DRIVER": "13.4"}
        for name, command in ((f"libcudart.so.{version}", [WORK / "shared_runtime", lib / f"libcudart.so.{version}"]), (f"libcudart_static.a {version}", [WORK / f"static_runtime{version}"])):
            trace = WORK / f"trace-{name.replace(' ', '-')}"
            compare(f"{name}: the same up to its refusal", command, {}, env=env)
            under = Run(command, preload=(WEIR,), env={**env, "VGPU_TRACE": trace})
            asked = set()
            for line in trace.read_text().splitlines():
                call = json.loads(line)
                if call["fn"].startswith("cuGetProcAddress") and call["result"] == "CUDA_SUCCESS":
                    args = call["args"]
                    asked.add((args["*symbol"] if "*symbol" in args else args["symbol"], args["driver_version"], args["flags"]))
            seen = under.weir["proc_address"]
            hooked = {re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", h["symbol"]) for h in under.weir["driver"]["hooks"]}
            lost = sorted({n for n, _, _ in asked if n in hooked} - {re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", s) for s in seen["wrapped"]})
            leaked = [s for s in seen["passed"] if re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", s) in hooked]
            allocating = sorted(s for s in seen["wrapped"] if "Alloc" in s or "Create" in s)
            print(f"      {name} asked {len(asked)} questions: {len(seen['wrapped'])} functions wrapped, {len(seen['passed'])} passed, {seen['unknown']} unknown")
            print(f"      wrapped, allocating: {' '.join(allocating)}")
            check(f"{name}: each allocation function that it resolves is weir's", len(asked) > 100 and not lost and not leaked and "cuMemAlloc_v2" in seen["wrapped"],
                  f"asked {len(asked)}, lost {lost}, leaked {leaked}")


def short_memory():
    """Little address space left: wherever the job gets through bare, and with a little more than the least, it does under weir."""
    global MODE
    MODE = None
    program = cc(WORK / "short_memory", HERE / "programs/short_memory.c", *LINKED)
    env = {"VGPU_BACKING": "none", "VGPU_MEM": "4GiB", "WEIR_OOM_TEXT": "off", "WEIR_DIR": WORK / "short"}
    for when in (2, 3):
        # The virtual GPU's own tables need some, too, and it ends the process where it gets none.
        least = next(mib for mib in range(4, 200) if Run([program, str(mib), str(when)], env=env).status == 0)
        for mib in (least + 1, least + 2, least + 3, least + 4, 2 * least):
            under = Run([program, str(mib), str(when)], preload=(WEIR,), env=env)
            check(f"{mib} MiB of address space left ({least} are the least), from moment {when} on", under.status == 0 and under.out == "0 wrong answers\n", under.shown())
    MODE = "off"


def faults():
    """Something goes wrong inside weir: the job runs on, and the reason can be found."""
    linked, bare = [WORK / "linked"], Run([WORK / "linked"])

    def job(name, reason, preload=FAULTY, note=None, errs="", command=linked, against=bare, **how):
        state = WORK / "state"
        shutil.rmtree(state, ignore_errors=True)
        env = {"WEIR_DIR": state, **how.pop("env", {})}
        run = Run(command, preload=(preload,), env=env, **how)
        ok = (run.out, run.status) == (against.out, against.status) and not run.hung and re.fullmatch(errs, run.err)
        told = (run.weir or {}).get("off") or (run.weir or {}).get("remembered") or ""
        notes = [pathlib.Path(n).read_text() for n in glob.glob(f"{state}/note-*.json")]
        ok = ok and (reason in told if reason else told == "")
        if note is not None: ok = ok and (len(notes) == 1 and reason in notes[0] if note else notes == [])
        check(name, ok, f"told {told!r}, notes {notes}, stderr {run.err!r}\n" + difference(against.shown(), run.shown()))
        return run

    job("panic in a plain function", "panic in cuMemAlloc_v2", note=True, env={"WEIR_FAULT": "panic:cuMemAlloc_v2"})
    job("panic in a body", "panic in cuInit", note=True, env={"WEIR_FAULT": "panic:body:cuInit"})
    job("panic at the start", "panic in start", env={"WEIR_FAULT": "panic:start"})
    job("no fault, no note", "", note=False)
    # Without the real library weir cannot forward: what remains is the next definition, here libcuda itself.
    job("failed resolution", "not found", note=False, env={"WEIR_FAULT": "resolve"})
    line = lambda v, why: rf"weir: {re.escape(v)}: [^\n]*{why}[^\n]*\n"
    # A bad setting costs a line and itself; a bad limit costs the job its device (the suite caps, settings, has them all).
    bad = {"WEIR_STRICT": ("maybe", "expected 0 or 1"), "WEIR_POOL": ("perhaps", "using the default on"), "WEIR_DIR": ("here", "absolute")}
    for name, (value, why) in bad.items():
        job(f"bad value: {name}={value}", "", preload=WEIR, note=False, errs=line(f"{name}={value}", why), env={name: value})
    job("a variable that is not known", "", preload=WEIR, note=False, errs=line("WEIR_CPA", "did you mean WEIR_CAP"), env={"WEIR_CPA": "8GiB"})
    job("a bad limit, WEIR_STRICT=0", "", preload=WEIR, note=False, errs=line("WEIR_CAP=8XiB", "runs without this limit"), env={"WEIR_CAP": "8XiB", "WEIR_STRICT": "0"})
    for env in ({}, {"WEIR_STRICT": "1"}):
        strict = Run(linked, preload=(WEIR,), env={"WEIR_CAP": "8XiB", **env})
        check("a bad limit: cuInit fails", strict.out.startswith("linked: 1 ") and re.fullmatch(line("WEIR_CAP=8XiB", "cuInit fails"), strict.err), strict.shown())
    # A cap that ends because weir disables itself is said aloud; without one it is a matter of weir's own.
    job("panic under a cap", "panic in cuMemAlloc_v2", note=True, errs=r"weir: panic in cuMemAlloc_v2[^\n]*and so is its cap\n", env={"WEIR_FAULT": "panic:cuMemAlloc_v2", "WEIR_CAP": "8GiB"})
    lost = Run(linked, preload=(FAULTY,), env={"WEIR_FAULT": "panic:start", "WEIR_CAP": "8GiB"})
    check("panic at the start under a cap: cuInit fails", lost.out.startswith("linked: 1 ") and re.fullmatch(line("WEIR_CAP=8GiB", "cuInit fails"), lost.err), lost.shown())

    # Places where no note can be left: the job and its output are as ever.
    panic = {"WEIR_FAULT": "panic:cuMemAlloc_v2"}
    blocked = WORK / "blocked"
    blocked.write_text("a file, not a folder")
    job("a directory that cannot be made", "panic in cuMemAlloc_v2", note=False, env={**panic, "WEIR_DIR": blocked / "state"})
    readonly = "/proc/self"  # nobody may create a file there, not even root
    job("a read-only home", "panic in cuMemAlloc_v2", note=False, env={**panic, "WEIR_DIR": "", "HOME": readonly})
    job("no home", "panic in cuMemAlloc_v2", note=False, env={**panic, "WEIR_DIR": "", "HOME": ""})
    nothing = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # (The virtual GPU's memory is a file and falls under that limit, too: here it is another driver.)
    strange = dict(command=[WORK / "strange_driver"], paths=(WORK / "strange",))
    job("a file size limit of nothing", "panic in cuMemAlloc_v2", note=False, env=panic, limit=nothing, against=Run(**strange), **strange)
    job("a full disk", "panic in cuMemAlloc_v2", note=False, env={**panic, "WEIR_FAULT": "panic:cuMemAlloc_v2,full"})
    check("nothing is left on the full disk", not os.listdir(WORK / "state"), "a file is left")
    full = WORK / "full"
    full.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=8", "none", full], capture_output=True).returncode == 0:
        # Where mounting is allowed, with a real one, too.
        (full / "filler").write_bytes(b"x" * 4096)
        job("a full file system", "panic in cuMemAlloc_v2", note=False, env={**panic, "WEIR_DIR": full})
        check("nothing is left on the full file system", os.listdir(full) == ["filler"], os.listdir(full))
        sh("umount", full)
    read, write = os.pipe()
    os.close(read)
    closed = Run(linked, preload=(WEIR,), env={"WEIR_CAP": "8GiB"}, stderr=write)
    os.close(write)
    check("nobody reads stderr", (closed.out, closed.status) == (bare.out, bare.status), closed.shown())
    without = lambda: os.close(2)
    closed = Run(linked, preload=(WEIR,), env={"WEIR_CAP": "8GiB"}, limit=without)
    check("stderr is closed", (closed.out, closed.status) == (bare.out, bare.status), closed.shown())


def everyday():
    """Programs without CUDA: same output, same errors, same status, no file, no thread."""
    global MODE
    MODE = None
    for command, package in (("git", "git"), ("gcc", "gcc"), ("perl", "perl"), ("node", "nodejs"), ("java", "default-jre-headless"), ("tmux", "tmux"), ("strace", "strace")):
        install(command, package)
    (WORK / "x.c").write_text("#include <stdio.h>\nint main(void){puts(\"hello\");}\n")
    threads = "'threads %d' % (len(os.listdir('/proc/self/task')))"
    programs = {
        "bash": ["bash", "-c", "x=$(echo a | tr a b); for i in 1 2 3; do (echo $x$i) & wait; done; type dlsym; echo $?; ls /proc/self/task | wc -l"],
        "coreutils": ["bash", "-c", "cd /usr && ls -l /bin/sh; sort /etc/passwd | md5sum; du -s /etc/hostname; date -d @0 -u; stat -c %n /; env | grep -v LD_PRELOAD | grep -v ^_= | sort; false"],
        "git": ["git", "-C", ROOT, "log", "-1", "--stat", "--format=%H %s"],
        "gcc": ["bash", "-c", f"gcc -O2 -flto {WORK}/x.c -o {WORK}/x && {WORK}/x && gcc -c /dev/null -x none -o /dev/null; echo $?"],
        "python3": [sys.executable, "-c", f"import os, ctypes, subprocess, threading, json, decimal; print({threads}, subprocess.run(['echo','x'],capture_output=True).stdout, ctypes.CDLL(None).getpid() > 0)"],
        "perl": ["perl", "-MPOSIX", "-e", "print scalar(glob('/proc/self/task/*')) ? 1 : 0, strftime('%Y', gmtime(0)), `echo x`"],
        "node": ["node", "-e", "console.log(require('fs').readdirSync('/proc/self/task').length > 0, require('child_process').execSync('echo x').toString())"],
        "java": ["java", "-version"],
        "cargo": ["cargo", "--version", "--verbose"],
        "tmux": ["bash", "-c", f"tmux -S {WORK}/tmux new-session -d 'echo in tmux > {WORK}/out'; for i in $(seq 1200); do [ -s {WORK}/out ] && break; sleep 0.05; done; cat {WORK}/out; rm {WORK}/out; tmux -S {WORK}/tmux kill-server 2>/dev/null; true"],
    }
    for name, command in programs.items():
        homes = []
        runs = []
        for preload in ((), (WEIR,)):
            home = WORK / "homes" / name
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            runs.append(Run(command, preload=preload, paths=(), home=home, env={k: os.environ[k] for k in ("CARGO_HOME", "RUSTUP_HOME") if k in os.environ} | {"RUSTUP_HOME": os.environ.get("RUSTUP_HOME", pathlib.Path.home() / ".rustup"), "CARGO_HOME": os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo")}))
            homes.append(sorted(str(p.relative_to(home)) for p in home.rglob("*")))
        same = runs[0].shown() == runs[1].shown() and homes[0] == homes[1]
        check(f"everyday: {name}", same and not runs[0].hung and (runs[0].out or runs[0].err), difference(runs[0].shown(), runs[1].shown()) + f"{homes}")
    # ldd lists what is loaded, so a preload shows; beside that nothing may.
    bare, under = Run(["ldd", "/bin/ls"], paths=()), Run(["ldd", "/bin/ls"], preload=(WEIR,), paths=())
    names = lambda run: {l.split()[0] for l in run.out.splitlines()}
    extra = {n.split("/")[-1] for n in names(under) - names(bare)}
    check("everyday: ldd", extra <= {"libweir.so", "libgcc_s.so.1"} and (bare.err, bare.status) == (under.err, under.status), (extra, under.err))
    # What the dynamic linker and the library do at start, seen from the kernel.
    log = WORK / "strace"
    Run(["strace", "-f", "-o", log, "-E", f"LD_PRELOAD={WEIR}", "/bin/true"], paths=())
    text = log.read_text()
    opened = re.findall(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]+)"', text)
    strange = [f for f in opened if not re.search(r"libweir\.so|libgcc_s\.so|libc\.so|ld\.so\.(cache|preload)|/locale", f)]
    effects = re.findall(r"^\d+ +(clone3?|fork|vfork|rt_sigaction|umask|socket|unlink|mkdir)\b", text, re.M)
    check("everyday: at start no file, no thread, no signal handler", not strange and not effects and "exited with 0" in text, (strange, effects))
    MODE = "off"


# What pthreads(7) lists and the C library has, but for what this library never calls in a way that waits: fcntl with F_SETLKW,
# and pause, in which a process ends.
CANCELLATION_POINTS = set("""accept accept4 aio_suspend clock_nanosleep close connect copy_file_range creat creat64 epoll_wait epoll_pwait fallocate fallocate64
    fdatasync fsync getrandom lockf mq_receive mq_send msgrcv msgsnd msync nanosleep open open64 openat openat64 poll posix_fallocate posix_fallocate64 ppoll
    pread pread64 preadv preadv64 pselect pthread_cond_timedwait pthread_cond_wait pthread_join pthread_testcancel pwrite pwrite64 pwritev pwritev64 read readv
    recv recvfrom recvmsg select sem_timedwait sem_wait send sendfile sendfile64 sendmsg sendto sigpause sigsuspend sigtimedwait sigwait sigwaitinfo sleep
    splice sync_file_range system tcdrain tee usleep vmsplice wait wait3 wait4 waitid waitpid write writev""".split())


def exports():
    out = sh("nm", "-D", "--defined-only", WEIR, capture_output=True, text=True).stdout
    symbols = {line.split()[-1] for line in out.splitlines()}
    status = Run([WORK / "linked"], preload=(WEIR,)).weir
    table = {h["symbol"] for h in status["driver"]["hooks"] + status["nvml"]["hooks"]}
    # What TensorFlow calls through its virtual tables, in compiled kernels and when it builds a graph; inert where there is none.
    tensorflow = {"TF_FinishOperation", "_mlir_ciface_tf_alloc",
                  "_ZN10tensorflow18XlaLocalLaunchBase12ComputeAsyncEPNS_15OpKernelContextESt8functionIFvvEE", "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE", "_ZN3tsl12BFCAllocator13DeallocateRawEPv"}
    check("exports are the table, dlsym, dlvsym, weir_status and TensorFlow's five", symbols == table | tensorflow | {"dlsym", "dlvsym", "weir_status"}, symbols ^ table)
    dynamic = sh("readelf", "-d", WEIR, capture_output=True, text=True).stdout
    check("the library is never unloaded and binds to itself", "NODELETE" in dynamic and "SYMBOLIC" in dynamic, dynamic)
    imports = {line.split()[-1].split("@")[0] for line in sh("nm", "-D", "--undefined-only", WEIR, capture_output=True, text=True).stdout.splitlines()}
    check("no function that it calls is a cancellation point", not imports & CANCELLATION_POINTS, imports & CANCELLATION_POINTS)
    tls = re.findall(r"^ *TLS .*\n.*", sh("readelf", "-lW", WEIR, capture_output=True, text=True).stdout, re.M)
    print(f"      {len(table)} functions intercepted; thread-local storage: {tls or 'none'}")


def doctor():
    env = {"WEIR_DIR": WORK / "doctor"}
    ask = lambda *args, **how: Run([COMMAND, "doctor", "--library", WEIR, *args], env={**env, **how.pop("env", {})}, **how)
    well = ask()
    check("weir doctor: all is well on the virtual GPU", well.status == 0 and "No problem found." in well.out and "FAIL" not in well.out, well.shown())
    data = json.loads(ask("--json").out)
    check("weir doctor --json", data["ok"] and len(data["seen"]["status"]["driver"]["hooks"]) > 150 and all(r["ok"] for r in data["seen"]["roads"]), data["checks"])
    absent = ask(paths=())
    check("weir doctor without a driver", absent.status == 1 and "not found" in absent.out and "WEIR_CAP" in absent.out, absent.shown())
    bad = ask(env={"WEIR_CAP": "lots"})
    check("weir doctor with a bad setting", bad.status == 1 and "WEIR_CAP=lots" in bad.out and "(environment)" in bad.out, bad.shown())
    Run([WORK / "linked"], preload=(FAULTY,), env={**env, "WEIR_FAULT": "panic:cuMemAlloc_v2"})
    later = ask()
    check("weir doctor finds why weir turned itself off earlier", later.status == 0 and "panic in cuMemAlloc_v2" in later.out, later.shown())
    strange = ask(paths=(WORK / "strange",))
    check("weir doctor lists functions that it does not know", "cuMemBrandNew" in strange.out, strange.shown())
    lost = Run([COMMAND, "doctor", "--library", WORK / "no-such.so"])
    check("weir doctor without the library", lost.status == 1 and "no library" in lost.out, lost.shown())


def assembly():
    run = subprocess.run([ROOT / "shim/tests/arch/run"], capture_output=True, text=True)
    print("\n".join("      " + l for l in run.stdout.splitlines() if l.startswith(("==", "FAIL", "noticed")) or "passed" in l))
    check("the assembly of x86-64 and aarch64", run.returncode == 0, run.stdout[-2000:] + run.stderr[-500:])


GROUPS = (neighbours, drivers, short_memory, faults, everyday, exports, doctor, assembly)
WITH_ALL = ", with pool and journal"


def main():
    global MODE
    groups = {group.__name__: group for group in (*GROUPS, runtimes)}
    listed = [*VICTIMS, *(name + WITH_ALL for name in VICTIMS), *(group.__name__ for group in GROUPS)]
    if sys.argv[1:] == ["--list"]:
        return print("\n".join(listed))
    if len(sys.argv) != 3 or sys.argv[1] != "--exact" or sys.argv[2] not in (*listed, *groups):
        sys.exit(__doc__)
    case = sys.argv[2]
    try:
        os.fstat(3)
    except OSError:
        os.dup2(1, 3)
    (WORK / "home").mkdir(parents=True)
    try:
        library("libplugin.so", *LINKED)
        if case in groups:
            build_drivers()
            for name in VICTIMS: build(name)
            groups[case]()
        else:
            MODE = None if case.endswith(WITH_ALL) else "off"
            fixture(case.removesuffix(WITH_ALL))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    print(f"{passed} checks passed, {len(failed)} failed")
    sys.exit(bool(failed) or not passed)


main()
