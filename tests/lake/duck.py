"""The same as spark.py, by DuckDB: usage: duck.py LAKE <queries.json. Bytes read are those of the process's read calls."""
import decimal
import json
import sys
import time

import duckdb

lake, = sys.argv[1:]


def read():
    return int(next(line for line in open("/proc/self/io") if line.startswith("rchar")).split()[1])


answers = {}
duck = duckdb.connect(config={"threads": 2})
duck.execute("SET TimeZone = 'UTC'")
duck.execute(f"CREATE VIEW runs AS SELECT * FROM read_parquet('{lake}/runs/*/*.parquet', hive_partitioning = true, union_by_name = true)")
for name, query in json.load(sys.stdin).items():
    before, began = read(), time.monotonic()
    rows = [list(row.values()) for row in duck.sql(query).to_arrow_table().to_pylist()]
    seconds, after = time.monotonic() - began, read()
    rows = [[value if isinstance(value, (int, float, str, type(None))) else float(value) if isinstance(value, decimal.Decimal) else str(value) for value in row] for row in rows]
    answers[name] = {"rows": rows, "seconds": seconds, "bytes": after - before}
print(json.dumps(answers))
