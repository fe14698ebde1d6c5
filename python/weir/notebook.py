"""Notebooks: `%load_ext weir`, then `%%weir` before a cell shows what it did to GPU memory, with the report and its page.

    %%weir            run the cell; then a line, the report and the page, folded unless the cell failed
    %weir             the report of this kernel so far
    %weir page        the page of it
    %weir last        the report of the kernel before this one, which ran out of memory or was killed

The kernel must run under weir: `python -m weir.kernel` makes one that does, and loads this. A cell's lines are named by its
number and line (`In[3]:2`), in the report as in the traceback. Changes nothing but the names of cells.
"""
import contextlib
import html
import json
import os
import tempfile
import time
import weakref

import weir

HINT = ("weir is not loaded into this kernel. Make one that runs under it: python -m weir.kernel --cap 8GiB, "
        "or start Jupyter under it: weir run --cap-per-process --cap 8GiB -- jupyter lab")
NOTHING = "no GPU memory was used yet"
NO_LAST = "no kernel of this notebook before this one ran out of GPU memory or was killed"
# Shells that have the magics.
_loaded = weakref.WeakSet()
# Kernels of one notebook that are remembered.
REMEMBERED = 8


def _size(count):
    return f"{count / (1 << 20):,.1f} MiB"


def _line(before, after):
    parts = [f"GPU memory: live {_size(after['live'])}"]
    if before is not None:
        change = after["live"] - before["live"]
        parts.append(f"{'+' if change >= 0 else '-'}{_size(abs(change))} by this cell")
    parts.append(f"peak {_size(after['peak'])}")
    cap = weir.limit(after["device"])
    if cap:
        parts.append(f"cap {_size(cap)}")
    return ", ".join(parts)


def _now():
    """What the report says now; None before the first CUDA call."""
    try:
        found = weir.report(json=True)
    except RuntimeError:
        return None
    if found is None:
        return None
    return {"device": found["device"], "peak": found["peak"], "live": dict(found["driver"]["parts"])["live"], "oom": found["oom"]}


def _page(run=None):
    """The page of a run as HTML to show in a notebook: it cannot reach the notebook's own. None where nothing is recorded."""
    with tempfile.TemporaryDirectory(prefix="weir-") as folder:
        file = os.path.join(folder, "page.html")
        if weir.report(run, arguments=("--html", file)) is None:
            return None
        with open(file, encoding="utf-8") as page:
            text = html.escape(page.read())
    return f'<iframe srcdoc="{text}" sandbox="allow-scripts" style="width:100%;height:640px;border:1px solid #ccc"></iframe>'


def _folded(title, inside, opened):
    return f"<details{' open' if opened else ''}><summary>{title}</summary>{inside}</details>"


def _screen(text):
    """Text as a terminal shows it, whatever the style of the notebook."""
    return f'<pre style="font-family:monospace;line-height:1.2;white-space:pre">{html.escape(text)}</pre>'


def _show(text, rich):
    from IPython.display import display
    display({"text/plain": text, "text/html": rich}, raw=True)


def _show_cell(before, after, failed):
    """The line; the report and the page below it where the frontend can fold them, else the report of a cell that failed."""
    line, report, page = _line(before, after), weir.report() or "", _page()
    # It failed, or a library made no error of it.
    open_ = failed or after["oom"] > (before["oom"] if before else 0)
    rich = _screen(line) + _folded("Report", _screen(report), open_) + _folded("Page", page or "", False)
    _show(f"{line}\n{report}" if open_ else line, rich)


@contextlib.contextmanager
def _silent(shell):
    """Errors of a cell inside are not shown: they are raised again, and shown then."""
    names = ("showtraceback", "showsyntaxerror", "showindentationerror")
    for name in names:
        setattr(shell, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name in names:
            delattr(shell, name)


class _Cells:
    """Names cells as Jupyter shows them: In[3], instead of a temporary file's name. ipykernel's debugger needs those names."""

    def __init__(self, shell):
        self.shell, self.number, self.inside = shell, 0, False
        compiler = getattr(shell, "compile", None)
        self.before = getattr(compiler, "get_code_name", None)
        if self.before is not None:
            compiler.get_code_name = self.name

    def name(self, raw, transformed, number):
        debugger = getattr(getattr(self.shell, "kernel", None), "debugger", None)
        if number == 0 or getattr(debugger, "is_started", False):
            return self.before(raw, transformed, number)
        if not self.inside:
            self.number = number
        return f"In[{self.number}]"

    def run(self, cell):
        """Runs what stands below `%%weir`, with the number and the lines that it has in the notebook."""
        outside, self.inside = self.inside, True
        try:
            with _silent(self.shell):
                # IPython strips empty lines; a magic for the cell must stay in the first one.
                return self.shell.run_cell(cell if cell.lstrip().startswith("%%") else "# %%weir\n" + cell)
        finally:
            self.inside = outside
            # Tracebacks have the number from here; IPython counts this as a cell of its own.
            numbers, name = getattr(self.shell.compile, "_filename_map", {}), f"In[{self.number}]"
            if name in numbers:
                numbers[name] = self.number


def _began_ns():
    """When this process began, or a second before: a later process may get its number."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat", encoding="utf-8") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return time.time_ns()
    return int((booted + ticks / os.sysconf("SC_CLK_TCK") - 1) * 1e9)


class _Kernels:
    """The processes that were this notebook's kernel, in a file beside its connection file, which a restart keeps."""

    def __init__(self, shell):
        self.earlier, self.file = [], None
        config = getattr(shell, "config", None) or {}
        connection = (config.get("IPKernelApp") or {}).get("connection_file")
        if not isinstance(connection, str):
            app = getattr(getattr(shell, "kernel", None), "parent", None)
            connection = getattr(app, "abs_connection_file", None)
        if not isinstance(connection, str) or not os.path.isabs(connection):
            return
        self.file = os.path.splitext(connection)[0] + ".weir"
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            with open(self.file, encoding="utf-8") as file:
                self.earlier = [(int(kernel["pid"]), int(kernel["since_ns"])) for kernel in json.load(file)]
        self.earlier = [kernel for kernel in self.earlier if kernel[0] != os.getpid()][-REMEMBERED:]
        mine = [*self.earlier, (os.getpid(), _began_ns())]
        with contextlib.suppress(OSError):
            with open(self.file, "w", encoding="utf-8") as file:
                json.dump([{"pid": pid, "since_ns": since} for pid, since in mine], file)

    def last(self):
        """The newest run of an earlier kernel that ran out of memory or was killed; None without one."""
        if not self.earlier:
            return None
        try:
            runs = json.loads(weir.command("list", "--json")) or []
        except RuntimeError:
            return None
        kernels = dict(self.earlier)
        runs = [run for run in runs if run.get("pid") in kernels and run["started_ns"] >= kernels[run["pid"]]]
        runs = [run for run in runs if run["oom"] or run["state"] == "killed"]
        return max(runs, key=lambda run: run["started_ns"], default=None)


def _tell(shell, last):
    """One line about the kernel before: now, or before the first cell where no cell has asked."""
    how = f"ran out of GPU memory {last['oom']} times" if last["oom"] > 1 else "ran out of GPU memory" if last["oom"] else "was killed"
    text = f"weir: the kernel before this one (process {last['pid']}) {how}; `%weir last` shows why"
    if getattr(shell, "parent_header", True):
        print(text)
        return

    def once(*_):
        shell.events.unregister("pre_run_cell", once)
        print(text)

    shell.events.register("pre_run_cell", once)


def load(shell):
    """Registers the magics and names the cells."""
    from IPython.core.magic import register_line_cell_magic

    if shell in _loaded:
        return
    _loaded.add(shell)
    cells = _Cells(shell)
    kernels = _Kernels(shell)
    if last := kernels.last():
        _tell(shell, last)

    @register_line_cell_magic("weir")
    def magic(line, cell=None):
        __tracebackhide__ = True
        words = line.split()
        if words == ["last"] and cell is None:
            last = kernels.last()
            if last is None:
                print(NO_LAST)
            else:
                report = weir.report(last["path"])
                _show(report, _screen(report) + _folded("Page", _page(last["path"]), False))
            return
        if words not in ([], ["page"]) or (words and cell is not None):
            raise ValueError(f"%weir {line}: expected nothing, page or last")
        if not weir.active():
            print(HINT)
            if cell is not None:
                cells.run(cell).raise_error()
            return
        if cell is None:
            page = _page() if words else None
            if page is None:
                print(weir.report() or NOTHING)
            else:
                _show(weir.report(), page)
            return
        before = _now()
        result = cells.run(cell)
        after = _now()
        if after:
            _show_cell(before, after, not result.success)
        else:
            print(NOTHING)
        result.raise_error()
