"""Load for the console's pictures: a stream that scales, one with text of many kinds, tables."""

from __future__ import annotations

import asyncio
import json
import math

from sarit.core.envelope import Envelope
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy
from sarit.process.observation.registry_view import RegistryView
from sarit.registry.access import Guard
from sarit.registry.values import GroupName, NewSchema
from sarit.schemas.definitions import Kind
from tests.unit.registry.world import registry


async def create_objects(client) -> None:
    """What the pages show at rest."""
    await client.create_scope("shop")
    await client.create_scope("iot")
    await client.create_stream("shop/orders", segments=2, tags=["orders", "eu"])
    await client.create_stream(
        "shop/payments", segments=4, retention=RetentionPolicy(RetentionType.TIME, 7 * 86_400_000), tags=["pci"]
    )
    await client.create_stream("shop/audit", segments=1, retention=RetentionPolicy(RetentionType.SIZE, 1 << 30))
    await client.create_stream("iot/sensors", scaling=ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 300, 2, 1))
    await client.create_stream("iot/old-readings", segments=1)
    await client.seal_stream("iot/old-readings")
    await client.tables.create("shop/prices", primary_key_bytes=8)
    await client.tables.create("shop/carts", primary_key_bytes=8, secondary_key_bytes=4, partitions=2)
    prices = client.table("shop/prices")
    await prices.put_many([(f"sku-{n:04d}", json.dumps({"price": n * 7 % 90, "currency": "EUR"})) for n in range(180)])
    carts = client.table("shop/carts")
    await carts.put_many([((f"cart{n:04d}", f"{m:04d}"), b"\x00\x01\xff" * m) for n in range(5) for m in range(3)])


async def write_orders(client, count: int) -> None:
    """Events as text, JSON, envelopes and bytes."""
    async with client.writer("shop/orders") as writer:
        for n in range(count):
            order = {"id": n, "customer": f"c{n % 17}", "items": [{"sku": f"sku-{n % 180:04d}", "n": 1 + n % 3}]}
            body = json.dumps(order)
            key = f"customer {n % 17}"
            if n % 4 == 1:
                writer.write(bytes(Envelope(body, key=key, event_time=1_790_000_000_000_000 + n, headers={"v": b"2"})),
                             key=key)  # fmt: skip
            elif n % 4 == 2:
                writer.write(f"order {n} was sent", key=key)
            elif n % 4 == 3:
                writer.write(bytes(range(n % 40 + 20)), key=key)
            else:
                writer.write(body, key=key)
        await writer.flush()


async def sensors(client, seconds: float, per_second: float = 2000.0) -> None:
    """Load on iot/sensors that rises, with one hot key."""
    began = asyncio.get_running_loop().time()
    owed = 0.0
    async with client.writer("iot/sensors") as writer:
        while (gone := asyncio.get_running_loop().time() - began) < seconds:
            owed += per_second * (0.3 + 0.7 * min(1.0, gone / seconds * 2)) * (1 + 0.3 * math.sin(gone / 3)) * 0.02
            for n in range(int(owed)):
                key = "hot" if n % 3 == 0 else f"sensor {n * 7919 % 211}"
                writer.write(b'{"sensor": "%s", "value": %d}' % (key.encode(), n % 100), key=key)
            owed -= int(owed)
            await writer.drain()
            await asyncio.sleep(0.02)
        await writer.flush()


async def schemas():
    """A schema registry with two versions of a group, of which the second has hostile text."""
    made = registry()
    name = GroupName("", "shop.orders")
    for text in (
        '{"type":"record","name":"Order","fields":[{"name":"n","type":"long"}]}',
        '{"type":"record","name":"Order","doc":"<svg onload=window.pwned=1>","fields":[{"name":"n","type":"long"},'
        '{"name":"paid","type":"boolean","default":false}]}',
    ):
        await made.register(name, NewSchema(Kind.AVRO, text))
    return RegistryView(made, Guard())
