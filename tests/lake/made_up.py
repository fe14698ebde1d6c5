"""Made-up runs of a month, as `weir ship --rows` takes them: a line of JSON each, and at the end, on standard error, what a
reader of them all must find, counted while they are made.

usage: made_up.py NUMBER [--seed N] [--month YYYY-MM]"""
import argparse
import calendar
import collections
import datetime
import json
import random
import sys

parser = argparse.ArgumentParser()
parser.add_argument("number", type=int)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--month", default="2026-10")
wanted = parser.parse_args()

GIB = 1 << 30
NAMES = [f"train-{name}" for name in ("resnet", "bert", "unet", "gan", "ranker", "speech", "detector", "vit")] + ["notebook", "eval <b>all</b>"]
CAUSES = ["cap", "growth", "device_full", "fragmentation", "request_too_large", "reserved_idle", "tensorflow_limit", "other_process"]
WEIGHTS = [30, 20, 18, 8, 8, 7, 6, 3]
OPS = ["Conv2DBackpropInput", "MatMul", "Conv2D", "Adam/Mul", "GatherV2", "ConcatV2", "SelectV2", "BiasAddGrad"]
GPUS = [("NVIDIA A100-SXM4-40GB", 40), ("NVIDIA A100-SXM4-80GB", 80), ("NVIDIA H100 80GB HBM3", 80), ("NVIDIA L4", 24)]
REMEDIES = ["batch of 64 instead of 128; every request then fits", "keep no results of earlier steps", "float16 for activations"]

rng = random.Random(wanted.seed)
year, month = map(int, wanted.month.split("-"))
days = calendar.monthrange(year, month)[1]
begin = int(datetime.datetime(year, month, 1, tzinfo=datetime.timezone.utc).timestamp()) * 1_000_000
truth = {"runs": 0, "oom": 0, "recovered": 0, "lost_seconds": 0.0, "gpu_seconds": 0.0, "causes": collections.Counter(), "lines": collections.Counter(),
         "peaks": {}}
write = sys.stdout.write
for number in range(wanted.number):
    started = begin + rng.randrange(days * 86_400) * 1_000_000 + rng.randrange(1_000_000)
    name = rng.choice(NAMES)
    kind = NAMES.index(name)
    gpu, memory = GPUS[kind % len(GPUS)]
    cap = None if kind == 8 else min(memory, 8 + 4 * kind) * GIB
    limit = cap or memory * GIB
    seconds = round(min(rng.expovariate(1 / 2000), 86_400), 3)
    # Two kinds of jobs never run out.
    outcome = rng.choices(["ok", "oom", "failed", "killed", "recovered"], [90, 0, 6, 4, 0] if kind in (0, 8) else [80, 9, 6, 4, 1])[0]
    gpus = rng.choice([1, 1, 1, 2, 4])
    share = 0.98 if outcome == "oom" else rng.uniform(0.1, 0.3 + 0.06 * kind)
    row = {"run": f"{started:016x}-{number}-{wanted.seed:08x}", "started": started, "ended": started + int(seconds * 1e6), "seconds": seconds, "name": name,
           "host": f"gpu-{rng.randrange(40):02}", "user": f"u{rng.randrange(200)}", "job": str(100_000 + number // 2), "task": number % 2, "tasks": 2,
           "command": f"{name}.py --lr {rng.choice(['1e-3', '3e-4'])}", "framework": "tensorflow 2.21.0", "outcome": outcome, "gpu": gpu, "gpus": gpus,
           "gpu_uuid": f"GPU-{rng.randrange(160):032x}", "gpu_memory": memory * GIB, "peak": int(limit * share), "events": rng.randrange(1, 1_000_000),
           "weir": "0.1.0"}
    if cap:
        row["cap"] = cap
    if outcome in ("ok", "oom", "failed", "recovered"):
        row["exit_status"] = 0 if outcome in ("ok", "recovered") else 1
    if outcome in ("oom", "recovered"):
        cause = rng.choices(CAUSES, WEIGHTS)[0]
        # A few lines are most of it.
        line = f"{name.split()[0]}.py:{int(rng.paretovariate(1.2)) % 400 + 1}"
        row |= {"ooms": rng.randrange(1, 9), "cause": cause, "evidence": f"the cap of {limit} is reached", "line": line, "file": f"/home/team/{line.split(':')[0]}",
                "function": "train_step", "op": rng.choice(OPS), "requested": rng.randrange(1, 4 * GIB), "remedy": rng.choice(REMEDIES), "remedy_check": "replayed"}
    write(json.dumps(row))
    write("\n")
    truth["runs"] += 1
    truth["gpu_seconds"] += seconds * gpus
    if outcome == "oom":
        truth["oom"] += 1
        truth["lost_seconds"] += seconds * gpus
        truth["causes"][cause] += 1
        truth["lines"][f"{line} {row['op']}"] += 1
    else:
        truth["recovered"] += outcome == "recovered"
        truth["peaks"][name] = max(truth["peaks"].get(name, 0), row["peak"])
truth["lines"] = dict(truth["lines"].most_common(50))
print(json.dumps(truth), file=sys.stderr)
