"""Exports opened by the formats' real readers: DuckDB, pandas, Google's pprof (as it comes with Go), heaptrack_print, Perfetto's
published schema, Python's unpickler with the rules of PyTorch's viewer. What is live must add up in each."""
import collections
import csv
import functools
import io
import json
import pickle
import pickletools
import re

import duckdb
import pandas
import pyarrow.parquet
import pytest
from conftest import GIB, MIB, RELEASE, cargo, environment, need, run, weir
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

SAMPLES = ["plain", "lapped", "regions"]
ENDINGS = {"pickle": "memviz", "pb.gz": "pprof", "perfetto-trace": "perfetto", "heaptrack.gz": "heaptrack", "folded": "folded",
           "parquet": "parquet", "csv": "csv", "jsonl": "jsonl"}
COMMAND = 'python3 train, "quoted".py --batch 64'


class Sample:
    """A journal with what is live in it, as counted while it was written, and its exports."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.expected = json.loads((folder / f"{name}.expected").read_text())
        self.live = {(row["device"], row["class"]): row["bytes"] for row in self.expected["live"] if row["bytes"]}

    @functools.cache
    def export(self, ending):
        path = self.folder / f"{self.name}.{ending}"
        weir("export", self.folder / f"{self.name}.weir", "--to", ENDINGS[ending], "-o", path)
        return path

    @functools.cached_property
    def csv(self):
        with open(self.export("csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file, strict=True))

    @functools.cached_property
    def jsonl(self):
        with open(self.export("jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @functools.cached_property
    def frame(self):
        return pandas.read_parquet(self.export("parquet"))

    @functools.cached_property
    def trace(self):
        """The values that counters end with, the instants, and the moments of all of them."""
        trace = perfetto.Trace()
        trace.ParseFromString(self.export("perfetto-trace").read_bytes())
        names, last, instants, moments = {}, {}, [], []
        for packet in trace.packet:
            if packet.HasField("track_descriptor"):
                names[packet.track_descriptor.uuid] = packet.track_descriptor.name
            elif packet.HasField("track_event"):
                event = packet.track_event
                moments.append(packet.timestamp)
                if event.type == perfetto.TrackEvent.TYPE_COUNTER:
                    last[names[event.track_uuid]] = event.counter_value
                else:
                    instants.append((event.name, {a.name: a.uint_value or a.string_value for a in event.debug_annotations}))
        return last, instants, moments

    @functools.cached_property
    def heaptrack(self):
        """What heaptrack_print says, and the sum of what it takes for leaked."""
        need("heaptrack_print", "heaptrack")
        graph = self.folder / f"{self.name}.leaked"
        done = run("heaptrack_print", "-f", self.export("heaptrack.gz"), "-F", graph, "--flamegraph-cost-type", "leaked", env=self.env)
        return done.stdout, sum(int(line.rsplit(" ", 1)[1]) for line in graph.read_text(encoding="utf-8").splitlines())

    @functools.cached_property
    def snapshot(self):
        return Plain(io.BytesIO(self.export("pickle").read_bytes())).load()

    @functools.cached_property
    def blocks(self):
        return {(segment["device"], block["address"]): block for segment in self.snapshot["segments"] for block in segment["blocks"]
                if block["state"] == "active_allocated"}

    @functools.cached_property
    def spans(self):
        return sorted((s["device"], s["address"], s["address"] + s["total_size"]) for s in self.snapshot["segments"])

    @functools.cached_property
    def env(self):
        return environment(HOME=self.folder, PPROF_TMPDIR=self.folder)

    def pprof(self, *arguments):
        need("go", "golang-go")
        return run("go", "tool", "pprof", *arguments, self.export("pb.gz"), env=self.env).stdout


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}: the viewer knows no classes")


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    cargo("-p", "weir-forensics", "--features", "synthetic", "--example", "export-samples")
    folder = tmp_path_factory.mktemp("export")
    run(RELEASE / "examples/export-samples", folder)
    return {name: Sample(folder, name) for name in SAMPLES}


@pytest.fixture(params=SAMPLES)
def sample(request, samples):
    return samples[request.param]


@pytest.fixture
def plain(samples):
    """All sorts of memory on two devices, native stacks, and an OOM."""
    return samples["plain"]


def by_class(rows):
    """Live bytes by device and class from rows of (kind, device, class, allocated)."""
    live = collections.Counter()
    for kind, device, name, allocated in rows:
        if kind in ("live", "alloc"):
            live[device, name] += allocated
        elif kind == "free":
            live[device, name] -= allocated
    return {key: value for key, value in live.items() if value}


def test_csv_adds_up(sample):
    assert by_class((r["kind"], int(r["device"]), r["class"], int(r["allocated"])) for r in sample.csv) == sample.live


def test_jsonl_adds_up(sample):
    assert by_class((r["kind"], r["device"], r["class"], r["allocated"]) for r in sample.jsonl) == sample.live


def test_jsonl_has_what_csv_has(sample):
    assert [{k: str(v) for k, v in line.items()} for line in sample.jsonl] == sample.csv


def test_parquet_adds_up_in_pandas(sample):
    assert by_class(sample.frame[["kind", "device", "class", "allocated"]].itertuples(index=False)) == sample.live


def test_parquet_has_the_type_of_moments(sample):
    assert str(sample.frame["time_ns"].dtype) == "datetime64[ns, UTC]"


def test_parquet_knows_its_command(sample):
    assert pyarrow.parquet.read_schema(sample.export("parquet")).metadata[b"weir.command"].decode() == COMMAND


@pytest.mark.parametrize("ending, source", [("parquet", "'{}'"), ("csv", "read_csv('{}')"), ("jsonl", "read_json('{}')")], ids=["parquet", "csv", "jsonl"])
def test_duckdb_adds_up(sample, ending, source):
    sql = f"""select device, class, sum(case kind when 'free' then -allocated when 'alloc' then allocated when 'live' then allocated end)
              from {source.format(sample.export(ending))} group by all having sum(allocated) > 0"""
    assert {(device, name): int(size) for device, name, size in duckdb.sql(sql).fetchall() if size} == sample.live


def test_parquet_has_the_texts_of_csv(sample):
    texts = ["kind", "class", "op", "region", "shape", "python", "native"]
    assert sample.frame[texts].values.tolist() == [[row[text] for text in texts] for row in sample.csv]


def test_parquet_has_the_addresses_of_csv(sample):
    assert [f"{address:#x}" for address in sample.frame["address"]] == [row["address"] for row in sample.csv]


def total_of(text):
    """The total of `pprof -top`."""
    found = re.search(r"of (\d+)B total", text)
    return int(found.group(1)) if found else text


def test_pprof_adds_up_what_is_in_use(sample):
    assert total_of(sample.pprof("-top", "-unit=B", "-sample_index=inuse_space")) == sample.expected["held_bytes"]


def test_pprof_adds_up_what_was_allocated(samples):
    # Other samples have memory that is not held, or lost the beginning.
    regions = samples["regions"]
    assert total_of(regions.pprof("-top", "-unit=B", "-sample_index=alloc_space")) == regions.expected["allocated"]


def test_pprof_shows_by_default_what_is_in_use(sample):
    assert "Type: inuse_space" in sample.pprof("-traces", "-unit=B")


def test_pprof_names_native_functions(plain):
    assert "deep_function_of_the_sample" in plain.pprof("-traces", "-unit=B")


def test_pprof_has_lines(plain):
    assert re.search(r"deep_function_of_the_sample .*samples\.rs:\d+", plain.pprof("-raw"))


def test_pprof_has_build_ids(plain):
    assert re.search(r"export-samples [0-9a-f]{40}", plain.pprof("-raw"))


def folded(sample):
    return [line.rsplit(" ", 1) for line in sample.export("folded").read_text(encoding="utf-8").splitlines()]


def test_folded_adds_up(sample):
    assert sum(int(size) for _, size in folded(sample)) == sample.expected["held_bytes"]


def test_folded_has_no_empty_frame(sample):
    assert [stack for stack, _ in folded(sample) if not all(stack.split(";"))] == []


def test_heaptrack_adds_up(sample):
    assert sample.heaptrack[1] == sample.expected["held_bytes"]


def test_heaptrack_knows_its_command(sample):
    assert COMMAND in sample.heaptrack[0]


def test_perfetto_counters_end_with_what_is_live(sample):
    assert sample.trace[0] == {f"device {row['device']} {row['class']}": row["bytes"] for row in sample.expected["live"]}


def test_perfetto_is_in_order(sample):
    moments = sample.trace[2]
    assert moments and moments == sorted(moments)


def test_perfetto_has_the_oom(plain):
    assert [(notes["requested"], notes["op"]) for kind, notes in plain.trace[1] if kind == "oom"] == [(4 * GIB, "model/big/MatMul")]


def test_memviz_has_opcodes_that_the_viewer_reads(sample):
    known = """PROTO FRAME STOP MARK EMPTY_DICT EMPTY_LIST EMPTY_TUPLE APPEND APPENDS SETITEM SETITEMS DICT LIST TUPLE TUPLE1 TUPLE2
    TUPLE3 NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE MEMOIZE BINPUT LONG_BINPUT
    BINGET LONG_BINGET""".split()
    assert {op.name for op, _, _ in pickletools.genops(sample.export("pickle").read_bytes())} - set(known) == set()


def test_memviz_has_the_keys_of_a_snapshot(sample):
    assert set(sample.snapshot) == {"segments", "device_traces"}


def test_memviz_has_the_keys_of_a_segment(sample):
    keys = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
            "segment_pool_id", "is_expandable", "frames", "blocks"}
    assert sample.snapshot["segments"]
    for segment in sample.snapshot["segments"]:
        assert set(segment) == keys


def test_memviz_blocks_are_in_a_row(sample):
    for segment in sample.snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]


def test_memviz_blocks_fill_their_segment(sample):
    for segment in sample.snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]


def test_memviz_segments_are_apart(sample):
    spans = sample.spans
    assert all(one[2] <= next[1] for one, next in zip(spans, spans[1:]) if one[0] == next[0]), spans


def test_memviz_blocks_have_frames(sample):
    assert sample.blocks
    for block in sample.blocks.values():
        assert block["frames"] and set(block["frames"][0]) == {"name", "filename", "line"}


def test_memviz_adds_up(sample):
    in_regions = sum(row["bytes"] for row in sample.expected["live"] if row["class"] == "tensor")
    assert sum(block["size"] for block in sample.blocks.values()) == (in_regions or sample.expected["held_bytes"])


def events_of(sample):
    """Every event of a block, with its device."""
    found = [(device, event) for device, trace in enumerate(sample.snapshot["device_traces"]) for event in trace if event["action"] != "oom"]
    assert found
    return found


def test_memviz_events_are_inside_of_segments(sample):
    for device, event in events_of(sample):
        start, end = event["addr"], event["addr"] + event["size"]
        assert any(d == device and a <= start and end <= b for d, a, b in sample.spans), event


def test_memviz_allocates_only_free_addresses(sample):
    live = set()
    for device, event in events_of(sample):
        place = device, event["addr"]
        if event["action"] == "alloc":
            assert place not in live
            live.add(place)
        elif event["action"] == "free_completed":
            live.discard(place)


def test_memviz_events_lead_to_the_blocks(sample):
    live = {}
    for device, event in events_of(sample):
        if event["action"] == "alloc":
            live[device, event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            live.pop((device, event["addr"]), None)
    assert live
    assert {place for place, size in live.items() if place not in sample.blocks or sample.blocks[place]["size"] != size} == set()


def test_memviz_has_the_oom(plain):
    ooms = [event for trace in plain.snapshot["device_traces"] for event in trace if event["action"] == "oom"]
    assert [(event["size"], event["device_free"]) for event in ooms] == [(4 * GIB, 77 * MIB)]
