"""Reader groups: `python -m benchmarks.loads.sarit_group '{"controller": ..., "mode": ..., ...}'`.

`mode` "group": `readers` readers of a group share a stream of as many segments; they join and balance until each has
one, print "ready", and read when the file `go` exists.  "plain": as many plain readers, each of one segment.  Both
report the rate of the `events` events, read as lists.

"death": `readers` readers of a group in this process and a `victim` in another; a writer writes to all segments all the
time.  The victim is killed.  Reports the time until events written later have come from all of its segments, beyond the
time-out after which it counts as dead.  One line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import event_at, now
from sarit.core.cuts import StreamCut

BALANCE_SECONDS = 60.0
DEATH_SECONDS = 60.0
PAUSE_SECONDS = 0.01
KEYS = [f"key-{number}" for number in range(256)]


async def _balanced(readers: list[Any], each: int) -> None:
    """Read with all readers until each has `each` segments."""
    async with asyncio.timeout(BALANCE_SECONDS):
        while any(len(reader.segments) != each for reader in readers):
            await asyncio.gather(*(reader.read_batch(timeout=0.1) for reader in readers))


async def _go(options: dict[str, Any]) -> None:
    print("ready", flush=True)
    while not Path(options["go"]).exists():
        await asyncio.sleep(PAUSE_SECONDS)


async def _speed(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    left = int(options["events"])
    stream = options["stream"]
    if options["mode"] == "group":
        group = await client.reader_groups.create(options["group"], stream, automatic_checkpoint=None)
        readers = [await group.reader(f"r{number}") for number in range(int(options["readers"]))]
        began = now()
        await _balanced(readers, 1)
        balanced = now() - began
    else:
        segments = [found.segment for found in await client.stream(stream).segments()]
        name = client.stream(stream).name
        readers = [client.reader(stream, StreamCut(name, {segment: 0})) for segment in segments]
        for reader in readers:
            await reader.open()
        balanced = 0.0
    await _go(options)

    async def read(reader: Any) -> None:
        nonlocal left
        while left > 0:
            if options["mode"] == "group":
                batch = await reader.read_batch(timeout=0.2)
                count = 0 if batch is None else len(batch.events)
            else:
                count = len(await reader.read_events(timeout=0.2))
            left -= count

    began = now()
    await asyncio.gather(*map(read, readers))
    elapsed = now() - began
    found = {"events_per_s": round(int(options["events"]) / elapsed), "seconds": round(elapsed, 2)}
    return found | {"balanced_s": round(balanced, 2)}


# -- the death of a reader --------------------------------------------------------------------------


async def _victim(client: Any, options: dict[str, Any]) -> None:
    group = await client.reader_groups.open(options["group"])
    reader = await group.reader("victim", death_timeout=float(options["timeout"]))
    reported = False
    while True:
        await reader.read_batch(timeout=0.1)
        if not reported and len(reader.segments) == int(options["share"]):
            reported = True
            print(json.dumps([str(found.segment) for found in reader.segments]), flush=True)


async def _write(writer: Any) -> None:
    while True:
        for key in KEYS:
            writer.write(event_at(now()), key)
        await writer.drain()
        await asyncio.sleep(PAUSE_SECONDS)


async def _death(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    count, timeout = int(options["readers"]), float(options["timeout"])
    group = await client.reader_groups.create(options["group"], options["stream"], automatic_checkpoint=None)
    readers = [await group.reader(f"r{number}", death_timeout=timeout) for number in range(count)]
    newest: dict[str, float] = {}

    async def read(reader: Any) -> None:
        while True:
            batch = await reader.read_batch(timeout=1.0)
            if batch is not None and batch.events:
                made = float(np.frombuffer(batch.events[-1][:8], np.float64)[0])
                newest[str(batch.segment.segment)] = made

    tasks = [asyncio.ensure_future(read(reader)) for reader in readers]
    tasks.append(asyncio.ensure_future(_write(client.writer(options["stream"]))))
    share = int(options["segments"]) // (count + 1)
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.loads.sarit_group",
        json.dumps(options | {"mode": "victim", "share": share}), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert victim.stdout is not None
    owned = json.loads(await asyncio.wait_for(victim.stdout.readline(), BALANCE_SECONDS))
    await asyncio.sleep(timeout)  # all is quiet
    victim.kill()
    killed = now()
    await victim.wait()
    taken_over: dict[str, float] = {}
    while len(taken_over) < len(owned) and now() < killed + DEATH_SECONDS:
        for segment in owned:
            if segment not in taken_over and newest.get(segment, 0.0) > killed:
                taken_over[segment] = now() - killed
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(PAUSE_SECONDS)
    for task in tasks:
        task.cancel()
    assert len(taken_over) == len(owned), f"of {owned} only {taken_over} were taken over"
    last = max(taken_over.values())
    return {"timeout_s": timeout, "segments": len(owned), "taken_over_s": round(last, 2),
            "beyond_timeout_s": round(last - timeout, 2)}  # fmt: skip


async def main(options: dict[str, Any]) -> None:
    """One run."""
    async with await connect(options["controller"]) as client:
        if options["mode"] == "victim":
            await _victim(client, options)
        else:
            found = await (_death if options["mode"] == "death" else _speed)(client, options)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
