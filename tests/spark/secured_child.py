"""A job that logs in by options: `ADDRESS PASSWORD_FILE CA EVENT_LOGS EVENTS REGISTRY`.

Prints the plans of what it does, what the UI shows, and the error of a wrong password."""

from __future__ import annotations

import contextlib
import io
import sys
import urllib.request
from pathlib import Path
from typing import Any

import sarit
import sarit.spark
from tests.secured import USER

address, password_file, ca, event_logs, count, registry = sys.argv[1:]
STREAM = "s/t"
LOGIN = {"controller": address, "user": USER, "passwordFile": password_file, "caFile": ca, "stream": STREAM}
REGISTRY = {
    "schemaRegistry": registry, "schemaRegistryUser": USER, "schemaRegistryPasswordFile": password_file,
    "schemaRegistryCaFile": ca, "stream": "s/registered",
}  # fmt: skip

credentials = sarit.UserPassword(USER, Path(password_file).read_text().strip())
with sarit.connect(address, credentials=credentials, tls=sarit.Tls(ca)) as client:
    client.create_scope("s")
    client.create_stream(STREAM, segments=2)

settings = {
    "spark.ui.enabled": True,
    "spark.ui.port": 0,
    "spark.eventLog.enabled": True,
    "spark.eventLog.compress": False,
    "spark.eventLog.dir": f"file://{event_logs}",
    "spark.redaction.regex": "nothing is hidden by its name",
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
spark = sarit.spark.session("secured", settings, master="local[2]")


def page(path: str) -> str:
    """What the UI shows."""
    with urllib.request.urlopen(spark.sparkContext.uiWebUrl + path, timeout=30) as answer:
        return str(answer.read().decode())


def reading(**more: str) -> Any:
    """All events."""
    return spark.read.format("sarit").options(**{**LOGIN, **more}).load()


frame = spark.range(int(count)).selectExpr("cast(id as string) as event")
frame.write.format("sarit").options(**LOGIN).mode("append").save()
batch = reading()
with contextlib.redirect_stdout(io.StringIO()) as plans:
    batch.explain("extended")
first = batch.count()
place = Path(event_logs).parent
query = (
    spark.readStream.format("sarit").options(**LOGIN).load().select("event")
    .writeStream.format("sarit").options(**LOGIN).option("checkpointLocation", str(place / "checkpoint"))
    .option("deliveryGuarantee", "exactly-once").trigger(availableNow=True).start()
)  # fmt: skip
query.awaitTermination()
with contextlib.redirect_stdout(plans):
    query.explain(True)
numbers = spark.range(int(count)).write.format("sarit").options(**LOGIN | REGISTRY, format="avro", createStream="true")
numbers.mode("append").save()
registered = reading(**REGISTRY)
with contextlib.redirect_stdout(plans):
    registered.explain("extended")
print(f"read {registered.select('id').distinct().count()} by their schema")
print(f"read {first} and then {reading().count()}")
print(plans.getvalue(), query.lastProgress, query.status)
print(*(page(path) for path in ("/environment/", "/SQL/", "/jobs/", "/SQL/execution/?id=0", "/SQL/execution/?id=1")))
wrong = place / "wrong"
wrong.write_text("wrong-password\n")
try:
    reading(passwordFile=str(wrong)).count()
except Exception as error:
    print("refused", error)
try:
    reading(**REGISTRY | {"schemaRegistryPasswordFile": str(wrong)})
except Exception as error:
    print("refused by the registry", error)
for path in (place / "checkpoint").rglob("*"):
    if path.is_file():
        print(path, path.read_bytes())
spark.stop()
