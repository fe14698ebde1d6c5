"""Steps through one allocation and one free that the pool serves, instruction by instruction, in gdb: which files of the
shim they enter, and how often each folder is entered. One JSON line a call; 1 if an allocation enters more than 20 files
or a folder twice.

usage: gdb -batch -x tests/preload/walk.py WALK    (with LD_PRELOAD set in gdb; scripts/bench walk does it)
"""

import itertools
import json

import gdb

MOST_FILES = 20
# Around everything: the guard is entered before the hook body and left after it.
AROUND = "process/guard.rs"


def quietly(command):
    return gdb.execute(command, to_string=True)


def step_through(function):
    """The source files of the instructions of one call, in order, and their number."""
    quietly(f"tbreak {function}")
    quietly("continue")
    frame = int(gdb.newest_frame().read_register("sp"))
    files = []
    while int(gdb.selected_frame().read_register("sp")) <= frame:
        line = gdb.find_pc_line(int(gdb.selected_frame().read_register("pc")))
        files.append(line.symtab.filename if line.symtab else "")
        quietly("stepi")
    return files


def entries(files):
    """How often each folder is entered from above: a call that comes back from below enters nothing."""
    folders = [file.split("/")[0] for file in files if file != AROUND]
    counts, open_folders = {}, []
    # A single instruction between two of another folder is code that the compiler has moved, not a call.
    folders = [
        folders[at - 1] if 0 < at < len(folders) - 1 and folders[at - 1] == folders[at + 1] else folder
        for at, folder in enumerate(folders)
    ]
    for folder, _ in itertools.groupby(folders):
        if folder in open_folders:
            del open_folders[open_folders.index(folder) + 1 :]
        else:
            open_folders.append(folder)
            counts[folder] = counts.get(folder, 0) + 1
    return counts


def main():
    for setting in ("pagination off", "confirm off", "breakpoint pending on"):
        quietly(f"set {setting}")
    quietly("break ready")
    quietly("run")
    wrong = False
    for function in ("cuMemAllocAsync", "cuMemFreeAsync"):
        steps = step_through(function)
        files = [file.split("shim/src/")[1] for file in steps if "shim/src/" in file]
        entered = entries(files)
        names = sorted(set(files))
        print(json.dumps({"walk": function, "instructions": len(steps), "files": len(names), "entered": entered}))
        if function == "cuMemAllocAsync":
            wrong = len(names) > MOST_FILES or max(entered.values()) > 1
    quietly("kill")
    return int(wrong)


gdb.execute(f"quit {main()}")
