"""`sarit bench`: a small load test of a running node through the Python client."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.options import controller_option, format_option, show
from sarit.core.errors import Conflict, NotFound

if TYPE_CHECKING:
    from sarit.client.aio import Client

_BATCH_EVENTS = 1000


def clock() -> float:
    """Seconds, by the running loop."""
    return asyncio.get_running_loop().time()


@click.command()
@click.option("--events", type=click.IntRange(1), default=1_000_000, show_default=True, help="How many to write.")
@click.option("--size", type=click.IntRange(1, 1 << 20), default=100, show_default=True, help="Bytes per event.")
@click.option("--segments", type=click.IntRange(1), default=1, show_default=True, help="Segments of the stream.")
@click.option("--keep", is_flag=True, help="Do not delete the stream afterwards.")
@controller_option
@format_option
def bench(events: int, size: int, segments: int, keep: bool, controller: str, output: str) -> None:
    """Write and read events and measure flush times, in a new stream in scope "bench"."""
    from sarit.env.event_loop import run

    figures = run(_bench(controller, events, size, segments, keep))
    text = "\n".join(f"{name.replace('_', ' '):<28} {value:>14,.2f}" for name, value in figures.items())
    show(output, figures, text)


async def _bench(controller: str, events: int, size: int, segments: int, keep: bool) -> dict[str, float]:
    from sarit.client.aio import connect
    from sarit.env.real import real_env

    async with await connect(controller) as client:
        new_scope = await client.create_scope("bench")
        stream = f"bench/cli-{real_env().random.bytes(8).hex()}"
        await client.create_stream(stream, segments=segments)
        try:
            return {
                **await _write(client, stream, events, size),
                **await _read(client, stream, size),
                **await _latency(client, stream, size),
            }
        finally:
            if not keep:
                await client.delete_stream(stream, seal=True)
                if new_scope:
                    with suppress(Conflict, NotFound):  # another run uses it, or has deleted it
                        await client.delete_scope("bench")


async def _write(client: Client, stream: str, events: int, size: int) -> dict[str, float]:
    batch = [b"x" * size] * _BATCH_EVENTS
    async with client.writer(stream) as writer:
        begun = clock()
        for left in range(events, 0, -_BATCH_EVENTS):
            writer.write_many(batch[:left])
            await writer.drain()
        await writer.flush()
        seconds = clock() - begun
    return {"write_events_per_second": events / seconds, "write_megabytes_per_second": events * size / seconds / 1e6}


async def _read(client: Client, stream: str, size: int) -> dict[str, float]:
    begun = clock()
    rows = 0
    reader: Any = client.reader(stream, end="tail")
    async for events in reader.batches():
        rows += len(events)
    seconds = clock() - begun
    return {"read_events_per_second": rows / seconds, "read_megabytes_per_second": rows * size / seconds / 1e6}


async def _latency(client: Client, stream: str, size: int) -> dict[str, float]:
    times = []
    async with client.writer(stream) as writer:
        for _ in range(500):
            begun = clock()
            writer.write(b"x" * size)
            await writer.flush()
            times.append((clock() - begun) * 1000)
            await asyncio.sleep(0.001)
    times.sort()
    return {f"flush_milliseconds_p{p}": times[min(len(times) - 1, len(times) * p // 100)] for p in (50, 95, 99)}
