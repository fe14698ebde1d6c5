"""A Jupyter kernel that runs under weir: writes its kernel.json, and nothing else.

    python -m weir.kernel --cap 8GiB                     for this user; JupyterLab then offers "Python 3 (weir, cap 8GiB)"
    python -m weir.kernel --vgpu 16GiB --name weir-vgpu  on the virtual GPU
    python -m weir.kernel --cap 8GiB --prefix DIR        below DIR/share/jupyter, as for an environment

Every kernel has a cap of its own. The kernel is the Python that runs this, and loads the extension weir at its start.
"""
import argparse
import json
import os
import re
import sys

import weir


def folder(prefix):
    """Where Jupyter looks for kernels: below a prefix, else in this user's data folder."""
    if prefix:
        return os.path.join(os.path.abspath(prefix), "share", "jupyter", "kernels")
    data = os.environ.get("JUPYTER_DATA_DIR")
    return os.path.join(data or os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "jupyter"), "kernels")


def spec(cap, vgpu, title):
    """What kernel.json says. No process stands between Jupyter and the kernel: its signals reach the kernel."""
    flags = [*(["--cap", cap] if cap else []), *(["--vgpu", vgpu] if vgpu else [])]
    variables = json.loads(weir.command("run", *flags, "--print-env", "--json"))
    # Jupyter puts variables of its own in for $NAME.
    variables = {name: value.replace("$", "$$") for name, value in variables.items()}
    described = ", ".join(["weir", *([f"cap {cap}"] if cap else []), *([f"virtual GPU of {vgpu}"] if vgpu else [])])
    return {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=weir"],
        "display_name": title or f"Python {sys.version_info[0]} ({described})",
        "language": "python",
        "env": variables,
        "metadata": {"debugger": True},
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m weir.kernel", description="Makes a Jupyter kernel that runs under weir.")
    parser.add_argument("--cap", metavar="SIZE", help="the cap of each kernel: 8GiB, 80%%")
    parser.add_argument("--vgpu", metavar="SIZE", help="run on a virtual GPU with this much memory")
    parser.add_argument("--name", default="weir", help="the kernel's folder, and its name for jupyter --kernel (default: weir)")
    parser.add_argument("--display-name", metavar="TEXT", help="what Jupyter shows")
    parser.add_argument("--prefix", metavar="DIR", help="install below DIR/share/jupyter instead of this user's data folder")
    given = parser.parse_args(arguments)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", given.name):
        parser.error(f"--name {given.name}: expected letters, digits, '.', '_' and '-'")
    try:
        described = spec(given.cap, given.vgpu, given.display_name)
        place = os.path.join(folder(given.prefix), given.name)
        os.makedirs(place, exist_ok=True)
        file = os.path.join(place, "kernel.json")
        with open(file + ".part", "w", encoding="utf-8") as part:
            json.dump(described, part, indent=2)
        os.replace(file + ".part", file)
    except (OSError, RuntimeError) as error:
        print(f"weir.kernel: {error}", file=sys.stderr)
        return 1
    print(f"{file}: {described['display_name']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
