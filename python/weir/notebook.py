"""Notebooks: `%load_ext weir`, then `%%weir` before a cell shows what it did to GPU memory;
`%weir` alone shows the report of the kernel so far. The kernel must have been started under weir: `weir run -- jupyter lab`."""
import weir

HINT = ("weir is not loaded into this kernel. Start Jupyter under it: weir run --cap-per-process --cap 8GiB -- jupyter lab")


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
    return {"device": found["device"], "peak": found["peak"], "live": dict(found["driver"]["parts"])["live"]}


def load(shell):
    """Registers the magics."""
    from IPython.core.magic import register_line_cell_magic

    @register_line_cell_magic("weir")
    def magic(line, cell=None):
        if not weir.active():
            print(HINT)
            if cell is not None:
                shell.run_cell(cell)
            return
        if cell is None:
            print(weir.report() or "no GPU memory was used yet")
            return
        before = _now()
        result = shell.run_cell(cell)
        after = _now()
        print(_line(before, after) if after else "no GPU memory was used yet")
        if not result.success:
            # The whole story, where it was out of memory.
            print(weir.report() or "")
