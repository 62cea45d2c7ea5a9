"""Avro that Spark decodes by a schema registry, beside Avro with a given schema: the same rows in turn in one Spark."""

from __future__ import annotations

import io
import json
import statistics
from typing import TYPE_CHECKING, Any, Final

import fastavro

import sarit
from benchmarks.harness import SaritNode, load
from sarit.serializers.headers import confluent_header
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.scale import Scale

EVENTS: Final = 1_000_000
TURNS: Final = 9
GROUP: Final = 10_000
SEGMENTS: Final = 4
KEYS: Final = 97
JOB_SECONDS: Final = 1400.0
SUBJECT: Final = "bench"
OLD: Final[dict[str, Any]] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "price", "type": "double"},
    {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]}  # fmt: skip
NEW: Final = {**OLD, "fields": [*OLD["fields"], {"name": "count", "type": ["null", "int"], "default": None}]}


def registry(directory: Path, scale: Scale) -> dict[str, Any]:
    """Seconds and processor seconds of Spark for each way, and the medians of their ratios to the given schema.

    "given again" is the control: what the ratio of equal work is on this machine."""
    events = EVENTS // 10 if scale.quick else EVENTS
    with SaritNode(directory, 1, "--registry", "on", "--registry-port", "0").start() as node:
        client = RegistryClient(f"http://{node.registry}")
        ids = [client.register(SUBJECT, Schema(json.dumps(one))) for one in (OLD, NEW)]
        headers = [confluent_header(one) for one in ids]
        _fill(node.endpoint, "given", events, [(b"", NEW)])
        _fill(node.endpoint, "registered", events, [(headers[1], NEW)])
        _fill(node.endpoint, "mixed", events, [(headers[0], OLD), (headers[1], NEW)])
        given = {"stream": "bench/given", "format": "avro", "avroSchema": json.dumps(NEW)}
        by_id = {"schemaRegistry": client.url, "subject": SUBJECT, "schemaHeader": "confluent"}
        reads = {
            "given": given, "registry": {"stream": "bench/registered", **by_id}, "given again": given,
            "two versions": {"stream": "bench/mixed", **by_id},
        }  # fmt: skip
        job = {
            "mode": "compare", "format": "sarit", "options": {"controller": node.endpoint}, "reads": reads,
            "columns": [one["name"] for one in NEW["fields"]], "turns": 3 if scale.quick else TURNS,
        }  # fmt: skip
        found = load("spark_job", job, JOB_SECONDS)
    for one in found.values():
        for what in ("seconds", "cpu_s"):
            ratios = [mine / plain for mine, plain in zip(one[what], found["given"][what], strict=True)]
            one[f"{what}_to_given"] = round(statistics.median(ratios), 3)
    return {"events": events, **found}


def _fill(controller: str, name: str, events: int, kinds: list[tuple[bytes, dict[str, Any]]]) -> None:
    """Write events to a new stream: as many of each kind, a header and a schema, in turn."""
    parsed = [(header, fastavro.parse_schema(json.loads(json.dumps(schema)))) for header, schema in kinds]
    with sarit.connect(controller) as client:
        client.create_scope("bench")
        client.create_stream("bench", name, SEGMENTS)
        with client.writer(f"bench/{name}") as writer:
            for first in range(0, events, GROUP):
                numbers = range(first, min(first + GROUP, events))
                group = [_event(number, *parsed[number % len(parsed)]) for number in numbers]
                writer.write_many(group, [str(number % KEYS) for number in numbers])


def _event(number: int, header: bytes, schema: Any) -> bytes:
    data = io.BytesIO()
    data.write(header)
    row = {"id": number, "name": f"name {number}", "price": number / 2, "seen": number * 1000, "count": number % 1000}
    fastavro.schemaless_writer(data, schema, row)
    return data.getvalue()
