"""Reads every export with its real reader and adds up what is live.

usage: check.py FOLDER    FOLDER has NAME.expected (what is live, counted while the journal was written) and NAME.<ending>
"""
import collections
import csv
import io
import json
import pathlib
import pickle
import pickletools
import re
import subprocess
import sys

import duckdb
import pandas
import pyarrow.parquet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

folder = pathlib.Path(sys.argv[1])
passed = failed = 0


def check(what, found, expected):
    global passed, failed
    if found == expected:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {what}: found {found}, expected {expected}")


def by_class(rows):
    """Live bytes by device and class from rows of (kind, device, class, given)."""
    live = collections.Counter()
    for kind, device, name, given in rows:
        if kind in ("live", "alloc"):
            live[device, name] += given
        elif kind == "free":
            live[device, name] -= given
    return {key: value for key, value in live.items() if value}


def tables(name, expected):
    wanted = {(row["device"], row["class"]): row["bytes"] for row in expected["live"] if row["bytes"]}
    path = {end: str(folder / f"{name}.{end}") for end in ("csv", "jsonl", "parquet")}
    with open(path["csv"], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
    check(f"{name}.csv", by_class((r["kind"], int(r["device"]), r["class"], int(r["allocated"])) for r in rows), wanted)
    with open(path["jsonl"], encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    check(f"{name}.jsonl", by_class((r["kind"], r["device"], r["class"], r["allocated"]) for r in lines), wanted)
    check(f"{name}.jsonl has what {name}.csv has", [{k: str(v) for k, v in line.items()} for line in lines], rows)

    frame = pandas.read_parquet(path["parquet"])
    found = by_class(frame[["kind", "device", "class", "allocated"]].itertuples(index=False))
    check(f"{name}.parquet in pandas", found, wanted)
    check(f"{name}.parquet has the type of moments", str(frame["time_ns"].dtype), "datetime64[ns, UTC]")
    about = pyarrow.parquet.read_schema(path["parquet"]).metadata
    check(f"{name}.parquet knows its command", about[b"weir.command"].decode(), 'python3 train, "quoted".py --batch 64')
    sql = """select device, class, sum(case kind when 'free' then -allocated when 'alloc' then allocated when 'live' then allocated end)
             from {} group by all having sum(allocated) > 0"""
    for source in (f"'{path['parquet']}'", f"read_csv('{path['csv']}')", f"read_json('{path['jsonl']}')"):
        answer = duckdb.sql(sql.format(source)).fetchall()
        check(f"{source} in DuckDB", {(d, c): int(b) for d, c, b in answer if b}, wanted)
    texts = ["kind", "class", "op", "region", "shape", "python", "native"]
    check(f"{name}.parquet has the texts of {name}.csv", frame[texts].values.tolist(), [[r[t] for t in texts] for r in rows])
    addresses = [f"{address:#x}" for address in frame["address"]]
    check(f"{name}.parquet has the addresses of {name}.csv", addresses, [r["address"] for r in rows])


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pprof(name, expected):
    path = str(folder / f"{name}.pb.gz")
    for kind, wanted in (("inuse_space", expected["held_bytes"]), ("alloc_space", expected["allocated"])):
        if kind == "alloc_space" and name != "regions":
            continue  # other samples have memory that is not held, or lost the beginning
        text = run("go", "tool", "pprof", "-top", "-unit=B", f"-sample_index={kind}", path)
        total = re.search(r"of (\d+)B total", text)
        check(f"{name}.pb.gz {kind} in pprof", int(total.group(1)) if total else text, wanted)
    text = run("go", "tool", "pprof", "-traces", "-unit=B", path)
    check(f"{name}.pb.gz is by default in use", "Type: inuse_space" in text, True)
    if name == "plain":
        check("plain.pb.gz names native functions", "deep_function_of_the_sample" in text, True)
        raw = run("go", "tool", "pprof", "-raw", path)
        check("plain.pb.gz has lines", bool(re.search(r"deep_function_of_the_sample .*samples\.rs:\d+", raw)), True)
        check("plain.pb.gz has build ids", bool(re.search(r"export-samples [0-9a-f]{40}", raw)), True)


def folded(name, expected):
    total = 0
    for line in (folder / f"{name}.folded").read_text(encoding="utf-8").splitlines():
        stack, size = line.rsplit(" ", 1)
        check(f"{name}.folded has no empty frame", all(stack.split(";")), True)
        total += int(size)
    check(f"{name}.folded", total, expected["held_bytes"])


def heaptrack(name, expected):
    graph = folder / f"{name}.leaked"
    text = run("heaptrack_print", "-f", str(folder / f"{name}.heaptrack.gz"), "-F", str(graph), "--flamegraph-cost-type", "leaked")
    leaked = sum(int(line.rsplit(" ", 1)[1]) for line in graph.read_text(encoding="utf-8").splitlines())
    check(f"{name}.heaptrack.gz in heaptrack_print", leaked, expected["held_bytes"])
    check(f"{name}.heaptrack.gz command", 'python3 train, "quoted".py --batch 64' in text, True)


def perfetto_trace(name, expected):
    trace = perfetto.Trace()
    trace.ParseFromString((folder / f"{name}.perfetto-trace").read_bytes())
    names, last, instants, time = {}, {}, [], 0
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            names[packet.track_descriptor.uuid] = packet.track_descriptor.name
        elif packet.HasField("track_event"):
            event = packet.track_event
            check(f"{name}.perfetto-trace is in order", packet.timestamp >= time, True)
            time = packet.timestamp
            if event.type == perfetto.TrackEvent.TYPE_COUNTER:
                last[names[event.track_uuid]] = event.counter_value
            else:
                instants.append((event.name, {a.name: a.uint_value or a.string_value for a in event.debug_annotations}))
    wanted = {f"device {row['device']} {row['class']}": row["bytes"] for row in expected["live"]}
    check(f"{name}.perfetto-trace", last, wanted)
    if name == "plain":
        oom = [notes for kind, notes in instants if kind == "oom"]
        check("plain.perfetto-trace tells of the OOM", [(o["requested"], o["op"]) for o in oom], [(4 << 30, "model/big/MatMul")])


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}: the viewer knows no classes")


# The opcodes that PyTorch's viewer reads.
KNOWN = """PROTO FRAME STOP MARK EMPTY_DICT EMPTY_LIST EMPTY_TUPLE APPEND APPENDS SETITEM SETITEMS DICT LIST TUPLE TUPLE1 TUPLE2
TUPLE3 NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE MEMOIZE BINPUT LONG_BINPUT
BINGET LONG_BINGET""".split()
SEGMENT = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
           "segment_pool_id", "is_expandable", "frames", "blocks"}


def memviz(name, expected):
    data = (folder / f"{name}.pickle").read_bytes()
    check(f"{name}.pickle opcodes", {op.name for op, _, _ in pickletools.genops(data)} - set(KNOWN), set())
    snapshot = Plain(io.BytesIO(data)).load()
    check(f"{name}.pickle keys", set(snapshot), {"segments", "device_traces"})
    blocks = {}
    for segment in snapshot["segments"]:
        check(f"{name}.pickle segment", set(segment), SEGMENT)
        at = segment["address"]
        for block in segment["blocks"]:
            check(f"{name}.pickle blocks in a row", block["address"], at)
            at += block["size"]
            if block["state"] == "active_allocated":
                blocks[segment["device"], block["address"]] = block
                check(f"{name}.pickle frames", bool(block["frames"]) and set(block["frames"][0]), {"name", "filename", "line"})
        check(f"{name}.pickle segment is full of blocks", at, segment["address"] + segment["total_size"])
    total = sum(block["size"] for block in blocks.values())
    in_regions = sum(row["bytes"] for row in expected["live"] if row["class"] == "tensor")
    check(f"{name}.pickle", total, in_regions or expected["held_bytes"])
    spans = sorted((s["device"], s["address"], s["address"] + s["total_size"]) for s in snapshot["segments"])
    check(f"{name}.pickle segments are apart", all(a[2] <= b[1] for a, b in zip(spans, spans[1:]) if a[0] == b[0]), True)
    for device, trace in enumerate(snapshot["device_traces"]):
        live = {}
        for event in trace:
            if event["action"] == "oom":
                check(f"{name}.pickle oom", (event["size"], event["device_free"]), (4 << 30, 77 << 20))
                continue
            place = event["addr"], event["addr"] + event["size"]
            inside = any(d == device and start <= place[0] and place[1] <= end for d, start, end in spans)
            check(f"{name}.pickle events are inside of segments", inside, True)
            if event["action"] == "alloc":
                check(f"{name}.pickle address is free", event["addr"] in live, False)
                live[event["addr"]] = event["size"]
            elif event["action"] == "free_completed":
                live.pop(event["addr"], None)
        gone = {a for a in live if (device, a) not in blocks or blocks[device, a]["size"] != live[a]}
        check(f"{name}.pickle events lead to the blocks", gone, set())


for path in sorted(folder.glob("*.expected")):
    expected = json.loads(path.read_text())
    for part in (tables, pprof, folded, heaptrack, perfetto_trace, memviz):
        part(path.stem, expected)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
