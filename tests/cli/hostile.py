"""Tests of what the command makes of files that were made to do harm: things that are no files, numbers that are too large,
names that are too many or that steer a terminal. Memory is bounded from outside, by the kernel (RLIMIT_AS), so that no
test depends on how much the machine has; the bound on time is there for what would never end, and is very generous."""
import gzip
import json
import os
import re
import resource
import socket
import subprocess
import sys
import unicodedata

from scene import PATIENCE, SYNTHETIC, WEIR, in_a_terminal

FORMATS = ("memviz", "pprof", "perfetto", "heaptrack", "folded", "parquet", "csv", "jsonl")
MIB = 1 << 20


def bounded(scene, *arguments, memory=1024 * MIB, codes=(0,), output=subprocess.PIPE, **env):
    """Runs the command with so much address space; what it said."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    done = subprocess.run([WEIR, *arguments], env=dict(scene.env, **env), stdin=subprocess.DEVNULL, stdout=output,
                          stderr=subprocess.PIPE, timeout=PATIENCE, cwd=scene.folder, preexec_fn=limit)
    said = done.stderr.decode("utf-8", "replace")
    assert done.returncode in codes, f"{arguments}: code {done.returncode}\n{said[-2000:]}"
    return (done.stdout or b"").decode("utf-8", "replace"), said


def steers(letter):
    """Whether a character is a control, a mark of direction, or has no width; the end of a line and a tab are neither."""
    return letter not in "\n\t" and (unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") or 0xfdd0 <= ord(letter) <= 0xfdef)


def harmless(what, text):
    odd = {hex(ord(letter)) for letter in text if steers(letter)}
    assert not odd, (what, odd, text[:2000])
    assert not re.search("^Forged", text, re.M), (what, text[:2000])


def what_is_no_file_is_refused_at_once(scene):
    folder = os.path.join(scene.folder, "odd")
    os.mkdir(folder)
    at = lambda name: os.path.join(folder, name)
    os.mkfifo(at("pipe.weir"))
    os.mkfifo(at("pipe.trace"))
    os.mkfifo(at("pipe.trace.gz"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(at("socket.weir"))
        os.symlink(at("loop.weir"), at("loop.weir"))
        os.symlink("/dev/zero", at("zero.weir"))
        os.symlink("/dev/zero", at("zero.trace"))
        os.symlink(at("pipe.weir"), at("link.weir"))
        os.mkdir(at("folder.weir"))
        os.mkdir(at("folder.trace"))
        names = sorted(os.listdir(folder)) + ["../missing.weir", "../missing.trace"]
        good = scene.synthetic("well")
        for name in names:
            path = at(name)
            commands = [["replay", path]]
            if name.endswith(".weir"):
                commands += [["report", path], ["report", path, "--html", "page.html"], ["diff", path, good], ["diff", good, path],
                             ["export", path, "--to", "csv", "-o", "-"], ["tail", path, "--all"], ["record", path, "-o", "kept.weirrec"]]
            for command in commands:
                out, said = bounded(scene, *command, memory=512 * MIB, codes=(1,))
                assert out == "" and said.startswith(f"weir {command[0]}: ") and len(said.splitlines()) == 1, (command, out, said)
        for command in (["list", "--dir", folder], ["top", "--once", "--dir", folder], ["metrics", "--once", "--dir", folder]):
            bounded(scene, *command, memory=512 * MIB)
        bounded(scene, "report", "--dir", folder, codes=(1,))
    assert not os.path.exists(os.path.join(scene.folder, "kept.weirrec"))


def what_a_module_is_does_not_matter(scene):
    """Paths of modules come from the journal: whatever is there, the export ends, and tells why functions have no names."""
    at = lambda name: os.path.join(scene.folder, name)
    os.mkfifo(at("pipe.so"))
    os.mkdir(at("folder.so"))
    os.symlink(at("loop.so"), at("loop.so"))
    open(at("text.so"), "w").write("no program")
    # A program whose tables claim far more than there is, and one beside which a pipe has the name of its debug information.
    program = bytearray(open("/bin/true", "rb").read())
    program[0x28:0x30] = (1 << 62).to_bytes(8, "little")
    open(at("claims.so"), "wb").write(program)
    program[0x28:0x30] = (64).to_bytes(8, "little")
    program[0x3c:0x3e] = b"\0\0"
    program[64 + 32:64 + 40] = (1 << 40).to_bytes(8, "little")
    open(at("sections.so"), "wb").write(program)
    with open(at("sparse.so"), "wb") as file:
        file.write(open("/bin/true", "rb").read(64))
        file.truncate(1 << 40)
    open(at("beside.so"), "wb").write(open("/bin/true", "rb").read())
    os.mkfifo(at("beside.so.dwp"))
    os.mkfifo(at("beside.dwp"))
    for path in [at(name) for name in ("pipe.so", "folder.so", "loop.so", "text.so", "claims.so", "sections.so", "gone.so")] + ["/dev/zero", "/dev/tty", "/proc/self/mem", "/proc/kmsg"]:
        journal = scene.synthetic("module", path)
        _, said = bounded(scene, "export", journal, "--to", "csv", "-o", "out.csv")
        assert path in said and "cannot be read" in said, (path, said)
        os.remove(journal)
    for name in ("beside.so", "sparse.so"):
        journal = scene.synthetic("module", at(name))
        bounded(scene, "export", journal, "--to", "csv", "-o", "out.csv")


def numbers_that_are_too_large_take_no_memory(scene):
    for how in range(5):
        journal = scene.synthetic("numbers", str(how))
        for form in FORMATS:
            bounded(scene, "export", journal, "--to", form, "-o", "-", "--newest", "0", memory=512 * MIB, output=subprocess.DEVNULL)
        for command in (["report", journal], ["report", journal, "--details"], ["report", journal, "--json"], ["report", journal, "--html", "page.html"],
                        ["report", journal, "--device", "62"], ["tail", journal, "--all", "--no-follow"], ["tail", journal, "--all", "--no-follow", "--json"],
                        ["diff", journal, journal], ["list"], ["list", "--json"], ["top", "--all", "--once"], ["top", "--all", "--json"], ["metrics", "--once"],
                        ["record", journal, "-o", "kept.weirrec", "--force"], ["report", "./kept.weirrec"],
                        ["replay", journal, "--policy", "weir,bfc,bfc-growth,torch", "--cap", "1GiB"], ["replay", journal, "--device", "62", "--json"]):
            out, _ = bounded(scene, *command, codes=(0, 1, 4))
            assert "NaN" not in out and "inf" not in re.sub(r"info|inferred", "", out), (command, out)
        os.remove(journal)


def names_that_are_too_many_take_no_memory(scene):
    journal = scene.synthetic("crowd", "6000")
    assert os.path.getsize(journal) < 64 * MIB
    for form in FORMATS:
        bounded(scene, "export", journal, "--to", form, "-o", "-", "--stacks", "--newest", "0", memory=384 * MIB, output=subprocess.DEVNULL)
    for command in (["report", journal, "--no-replay"], ["report", journal, "--no-replay", "--html", "page.html"], ["diff", journal, journal],
                    ["tail", journal, "--all", "--no-follow"], ["top", "--all", "--once"], ["metrics", "--once"]):
        bounded(scene, *command, output=subprocess.DEVNULL)


def traces_that_expand_take_no_memory(scene):
    at = lambda name: os.path.join(scene.folder, name)

    def packed(name, piece, times):
        # Gzip files one behind the other are one.
        open(at(name), "wb").write(gzip.compress(piece) * times)

    packed("zeros.trace.gz", b"\0" * (16 * MIB), 256)
    packed("pairs.trace.gz", b"a 1\na -1\n" * 1_000_000, 500)
    packed("blanks.trace.gz", b"\n" * (16 * MIB), 256)
    packed("live.trace.gz", b"".join(b"%d 4096\n" % number for number in range(3_000_000)), 1)
    open(at("long.trace"), "w").write("a" * 100_000 + " 1\n")
    open(at("bytes.trace"), "wb").write(b"\xff\xfe 1\n")
    with open(at("hole.trace"), "wb") as file:
        file.truncate(1 << 40)
    for name, word in [("zeros.trace.gz", "line 1"), ("pairs.trace.gz", "lines"), ("blanks.trace.gz", ""), ("live.trace.gz", "blocks are live"),
                       ("long.trace", "line 1"), ("bytes.trace", "not text"), ("hole.trace", "line 1")]:
        _, said = bounded(scene, "replay", at(name), codes=(1,))
        assert word in said and len(said.splitlines()) == 1, (name, said)
    open(at("good.trace"), "w").write("a 1000\nb 2000\na -1000\n")
    assert "smallest cap" in bounded(scene, "replay", at("good.trace"))[0]


def names_do_not_steer_what_shows_them(scene):
    """Every command and every format of text: no control character but the ends of lines and tabs, and no forged line."""
    journal = scene.synthetic("names")
    name = "odd\x1b[2Jname\nForged\u202e.weir"
    copy = os.path.join(scene.runs, name)
    open(copy, "wb").write(open(journal, "rb").read())
    commands = [["report", journal], ["report", copy], ["report", journal, "--details"], ["report", journal, "--json"], ["list"], ["list", "--json"],
                ["tail", journal, "--all", "--no-follow"], ["tail", copy, "--all", "--no-follow", "--json"], ["diff", journal, copy],
                ["diff", journal, copy, "--json"], ["top", "--all", "--once"], ["top", "--all", "--json"], ["metrics", "--once"], ["metrics", "--json"],
                ["replay", copy], ["replay", copy, "--json"], ["record", copy, "-o", "a\x1b[2J.weirrec", "--force"],
                ["record", copy, "-o", "a\x1b[2J.weirrec", "--force", "--json"], ["cap"], ["doctor"]]
    commands += [["export", copy, "--to", form, "--stacks", "-o", "-"] for form in ("csv", "jsonl", "folded")]
    commands += [["export", copy, "--to", "csv", "-o", "b\x1b[2J.csv", *more] for more in ([], ["--json"])]
    commands += [["report", journal, "--html", "c\x1b[2J\n.html"]]
    # Errors quote what was typed, and what is in the environment.
    commands += [[command, "/no\x1b[2J/where\nForged"] for command in ("report", "export", "replay", "tail", "record")]
    commands += [["export", journal, "--to", "\x1b[2Jcsv"], ["\x1b[2J"], ["report", "--\x1b[2J"], ["tail", journal, "--kind", "\x1b[2J"],
                 ["replay", journal, "--cap", "\x1b[2J"], ["run", "--cap", "\x1b[2J", "--", "true"], ["run", "--", "no\x1b[2J"], ["metrics", "--listen", "\x1b[2J"]]
    for command in commands:
        done = subprocess.run([WEIR, *command], env=scene.env, capture_output=True, timeout=PATIENCE, cwd=scene.folder)
        out, said = done.stdout.decode(), done.stderr.decode()
        harmless(command, out)
        harmless(command, said)
        assert done.returncode >= 0 and "panicked" not in said, (command, said)
        # What reads JSON gets the names as they are.
        if "--json" in command and command[0] == "tail":
            assert any("\u009b" in json.loads(line)["op"] and "\\u009b" in line for line in out.splitlines()), out[:2000]
    for command in (["list"], ["report", journal]):
        done = subprocess.run([WEIR, *command], env=dict(scene.env, WEIR_DIR="/no\x1b[2J/where"), capture_output=True, timeout=PATIENCE)
        harmless(command, (done.stdout + done.stderr).decode())
    # In a terminal, with the report's own colours and with no other sequence.
    for command in (["report", journal], ["list"], ["tail", journal, "--all", "--no-follow"]):
        shown, _ = in_a_terminal(scene, [WEIR, *command])
        bare = re.sub("\x1b\\[(0|1|2|33|1;31)m|\r(?=\n)|\r[^\r\n]*\x1b\\[K", "", shown)
        harmless(command, bare)
    page = [file for file in os.listdir(scene.folder) if file.endswith(".html")]
    text = open(os.path.join(scene.folder, page[0]), encoding="utf-8").read()
    assert "<script>alert" not in text, "a name ends the page's own data"
    harmless("the page", text)


def a_cell_is_no_formula(scene):
    journal = scene.synthetic("names")
    lines = bounded(scene, "export", journal, "--to", "csv", "--stacks", "-o", "-")[0].splitlines()
    import csv
    rows = list(csv.DictReader(lines, strict=True))
    texts = {row[key] for row in rows for key in ("op", "region", "shape", "python", "native", "stack")}
    assert not [text for text in texts if text[:1] in ("=", "+", "-", "@", "\t", "\r") and text], texts
    assert any(text.startswith("'=cmd|") for text in texts) and any(text.startswith("'@SUM") for text in texts), texts
    exported = [json.loads(line)["op"] for line in bounded(scene, "export", journal, "--to", "jsonl", "-o", "-")[0].splitlines()]
    assert any(text.startswith("=cmd|") for text in exported), "only spreadsheets need the quote"


def the_librarys_own_words_are_harmless(scene):
    """The text that the library prints in the job names operations and lines, which the job chose."""
    # A file whose name steers a terminal, run by Python: its lines are in the library's text.
    script = os.path.join(scene.folder, "job\x1b[2J\u202e.py")
    job = os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.py")
    open(script, "w").write(open(job).read())
    done = subprocess.run([WEIR, "run", "--vgpu", "512MiB", "--cap", "256MiB", "--", sys.executable, script, "oom"],
                          env=dict(scene.env, WEIR_OOM_TEXT="on"), capture_output=True, timeout=PATIENCE, cwd=scene.folder)
    said = done.stderr.decode("utf-8", "replace")
    assert "GPU OUT OF MEMORY" in said, said
    harmless("the library", said)
    dumps = [file for file in os.listdir(scene.runs) if file.endswith(".oom.json")]
    harmless("the dump", open(os.path.join(scene.runs, dumps[0]), encoding="utf-8").read())


TESTS = [what_is_no_file_is_refused_at_once, what_a_module_is_does_not_matter, numbers_that_are_too_large_take_no_memory,
         names_that_are_too_many_take_no_memory, traces_that_expand_take_no_memory, names_do_not_steer_what_shows_them, a_cell_is_no_formula,
         the_librarys_own_words_are_harmless]
