"""A stream scales under a writer's load: `python -m benchmarks.loads.sarit_scale '{"controller": ..., "rate": ...}'`.

`tries` streams of one segment, one after the other, each with a writer that writes with keys at `rate` events/s (0: as
fast as it goes), scaled to `segments`.  For each: how long the scale took, and the longest time in which nothing was
acknowledged, from the scale's begin until a second after its end; before it, too, for comparison.  What counts is the
acknowledgement of everything written up to some moment: one slow segment appender delays it.  Also reports the longest
time between two turns of the generator, which are due every `TICK_SECONDS`: a pause of this process (its client, its
garbage collector) or of the machine is part of the stall.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import EVENT_BYTES, Ticker, now

KEYS = [f"key-{number}" for number in range(5000)]
TICK_SECONDS = 0.001
BEFORE_SECONDS = 2.0
AFTER_SECONDS = 1.0
LEAST_EVENTS = 500


class _Writing:
    """A running writer, and the times of its acknowledgements."""

    def __init__(self, writer: Any, rate: float) -> None:
        self._writer, self._rate = writer, rate
        self._start = now()
        self._sent = 0
        self.acked: list[float] = []
        self.turns: list[float] = []
        self.latest_ms = 0.0
        self._failed: BaseException | None = None

    def write(self, count: int) -> None:
        """Write some more events, and a flush barrier after them."""
        write, event, first = self._writer.write, b"x" * EVENT_BYTES, self._sent
        for number in range(first, first + count):
            write(event, KEYS[number % len(KEYS)])
        self._sent += count
        begun = now()
        self._writer.flush_barrier().add_done_callback(lambda done: self._marked(done, begun))

    def _marked(self, done: asyncio.Future[None], begun: float) -> None:
        if (error := done.exception()) is not None:
            self._failed = error
            return
        moment = now()
        self.acked.append(moment)
        self.latest_ms = max(self.latest_ms, (moment - begun) * 1000)

    def tick(self) -> None:
        """Write what is due by now."""
        if self._failed is not None:
            raise self._failed
        self.turns.append(now())
        due = int((now() - self._start) * self._rate) - self._sent
        if due > 0:
            self.write(due)

    async def at_full_speed(self) -> None:
        """Until cancelled."""
        while True:
            self.write(LEAST_EVENTS)
            await self._writer.drain()


def _longest_gap_ms(moments: list[float], begin: float, end: float) -> float:
    """The longest gap between two of `moments` that overlaps [begin, end]."""
    at = np.array(moments)
    inside = (at[1:] >= begin) & (at[:-1] <= end)
    return round(float(np.diff(at)[inside].max(initial=0.0)) * 1000, 1)


async def _try(client: Any, name: str, rate: float, segments: int) -> dict[str, float]:
    await client.create_stream(name, segments=1)
    writer = client.writer(name)
    writing = _Writing(writer, rate)
    writing.write(LEAST_EVENTS)
    await writer.flush()
    ticker = Ticker(writing.tick, TICK_SECONDS) if rate else None
    full = None if rate else asyncio.ensure_future(writing.at_full_speed())
    await asyncio.sleep(BEFORE_SECONDS)
    begin = now()
    assert await client.stream(name).scale(segments)
    end = now()
    await asyncio.sleep(AFTER_SECONDS)
    if ticker is not None:
        ticker.stop()
    if full is not None:
        full.cancel()
    await writer.close()
    assert len(await client.stream(name).segments()) == segments
    return {
        "scale_ms": round((end - begin) * 1000, 1),
        "stall_ms": _longest_gap_ms(writing.acked, begin, end + AFTER_SECONDS),
        "own_pause_ms": _longest_gap_ms(writing.turns, begin, end + AFTER_SECONDS),
        "before_ms": _longest_gap_ms(writing.acked, begin - BEFORE_SECONDS / 2, begin),
    }


async def main(options: dict[str, Any]) -> None:
    """Some attempts: the first is cold."""
    rate, segments = float(options["rate"]), int(options.get("segments", 16))
    async with await connect(options["controller"]) as client:
        await client.create_scope("scaling")
        scope = f"scaling/{'full' if not rate else 'paced'}"
        tries = [await _try(client, f"{scope}-{number}", rate, segments) for number in range(int(options["tries"]))]
    worst = {f"{name}_worst": max(one[name] for one in tries) for name in tries[0]}
    middle = {f"{name}_median": float(np.median([one[name] for one in tries])) for name in tries[0]}
    print(json.dumps({"tries": tries, **worst, **middle}), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
