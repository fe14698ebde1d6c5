"""Runs queries over a lake by Spark: usage: spark.py LAKE EVENTS-FOLDER <queries.json; prints the rows, seconds and bytes read of
each as JSON."""
import decimal
import json
import pathlib
import sys
import time

from pyspark.sql import SparkSession

lake, log = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").appName("lake").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
         .config("spark.sql.session.timeZone", "UTC").config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", log)
         .config("spark.eventLog.compress", "false").config("spark.eventLog.rolling.enabled", "false").config("spark.sql.shuffle.partitions", "4").getOrCreate())
spark.read.parquet(f"{lake}/runs").createOrReplaceTempView("runs")
answers, times = {}, {}
for name, query in json.load(sys.stdin).items():
    spark.sparkContext.setJobGroup(name, name)
    began = time.monotonic()
    rows = spark.sql(query).collect()
    times[name] = time.monotonic() - began
    answers[name] = [[value if isinstance(value, (int, float, str, type(None))) else float(value) if isinstance(value, decimal.Decimal) else str(value) for value in row] for row in rows]
spark.stop()
(log,) = pathlib.Path(log).iterdir()
groups, read = {}, dict.fromkeys(answers, 0)
for line in log.open():
    event = json.loads(line)
    if event["Event"] == "SparkListenerJobStart":
        groups |= dict.fromkeys(event["Stage IDs"], event["Properties"].get("spark.jobGroup.id"))
    if event["Event"] == "SparkListenerTaskEnd" and groups.get(event["Stage ID"]) in read:
        read[groups[event["Stage ID"]]] += event["Task Metrics"]["Input Metrics"]["Bytes Read"]
print(json.dumps({name: {"rows": rows, "seconds": times[name], "bytes": read[name]} for name, rows in answers.items()}))
