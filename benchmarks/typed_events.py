"""What serializers cost: events a second of one Python process, of about 100 bytes, a record of seven fields.

python -m benchmarks.typed_events [--events N] [--rounds N]

A node of its own runs beside it.  The ways take turns in each round; a write counts until everything is acknowledged, a
read until the last event was handed out.  Prints one JSON object: by way, the median of the rounds of the events a
second, and of those a second of this process's processor time, which says more on a busy machine.

- `bytes_write`, `avro_write`, `json_write`: the blocking client, one `write` with a key for each event.
- `avro_write_many`: lists of 1,000.  `avro_write_asyncio`: one `write` each, on the event loop.
- `bytes_read`, `avro_read`, `json_read`: iterating over a reader of the blocking client.
- `avro_encode`, `avro_decode`: the serializer alone, without a client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sarit
from benchmarks.noisy_tenant import _node
from sarit.client import aio
from sarit.serializers import AvroDeserializer, AvroSerializer, JsonDeserializer, JsonSerializer

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
BATCH: Final = 1000


def rows(count: int) -> list[dict[str, Any]]:
    """Records of about 100 bytes in Avro."""
    return [
        {
            "id": number,
            "customer": f"customer-{number % 1000:06d}",
            "item": f"a thing of some length, to be sold or given away {number % 100}",
            "amount": number * 0.25,
            "count": number % 7,
            "paid": number % 2 == 0,
            "note": "please deliver soon" if number % 3 else None,
        }
        for number in range(count)
    ]


def write(client: sarit.Client, stream: str, values: list[Any], keys: list[str], serializer: Any) -> None:
    """Write values one by one, and wait until they are durable."""
    with client.writer(stream, serializer=serializer) as writer:
        for value, key in zip(values, keys, strict=True):
            writer.write(value, key)


def write_many(client: sarit.Client, stream: str, values: list[Any], keys: list[str], serializer: Any) -> None:
    """Write values in lists, and wait until they are durable."""
    with client.writer(stream, serializer=serializer) as writer:
        for start in range(0, len(values), BATCH):
            writer.write_many(values[start : start + BATCH], keys[start : start + BATCH])


def write_asyncio(address: str, stream: str, values: list[Any], keys: list[str], serializer: Any) -> None:
    """Write values one by one on an event loop, and wait until they are durable."""

    async def run() -> None:
        async with aio.connect(address) as client, client.writer(stream, serializer=serializer) as writer:
            for at, (value, key) in enumerate(zip(values, keys, strict=True)):
                writer.write(value, key)
                if not at % BATCH:
                    await writer.drain()

    asyncio.run(run())


def read(client: sarit.Client, stream: str, deserializer: Any) -> None:
    """Read a stream to its tail."""
    for _ in client.reader(stream, end="tail", deserializer=deserializer):
        pass


def measure(address: str, count: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return events a second, and a second of processor time, by way, of each round."""
    values = rows(count)
    keys = [f"k{number % 1000}" for number in range(count)]
    avro, text = AvroSerializer(SCHEMA), JsonSerializer()
    payloads = list(map(avro.serialize, values))
    found: dict[str, list[tuple[float, float]]] = {}
    with sarit.connect(address) as client:
        client.create_scope("bench")

        def timed(way: str, work: Callable[..., object], *given: Any) -> None:
            begun, processor = time.perf_counter(), time.process_time()
            work(*given)
            rates = count / (time.perf_counter() - begun), count / (time.process_time() - processor)
            found.setdefault(way, []).append(rates)

        for number in range(rounds):
            names = {way: f"bench/{way}-{number}" for way in ("bytes", "avro", "many", "aio", "json")}
            for name in names.values():
                client.create_stream(name, segments=2)
            timed("bytes_write", write, client, names["bytes"], payloads, keys, None)
            timed("avro_write", write, client, names["avro"], values, keys, avro)
            timed("avro_write_many", write_many, client, names["many"], values, keys, avro)
            timed("avro_write_asyncio", write_asyncio, address, names["aio"], values, keys, avro)
            timed("json_write", write, client, names["json"], values, keys, text)
            timed("bytes_read", read, client, names["bytes"], None)
            timed("avro_read", read, client, names["avro"], AvroDeserializer(SCHEMA))
            timed("json_read", read, client, names["json"], JsonDeserializer())
            timed("avro_encode", list, map(avro.serialize, values))
            timed("avro_decode", list, map(AvroDeserializer(SCHEMA).deserialize, payloads))
            for name in names.values():
                client.delete_stream(name, seal=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sarit-typed-") as directory, _node(Path(directory)) as (_, address):
        found = measure(address, options.events, options.rounds)
    figures = {
        way: {
            "per_second": round(statistics.median(rate for rate, _ in rates)),
            "per_processor_second": round(statistics.median(rate for _, rate in rates)),
        }
        for way, rates in found.items()
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
