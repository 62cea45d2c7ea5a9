"""Writes with Sarit's own client: `python -m benchmarks.loads.sarit_write '{"controller": ..., "stream": ...}'`.

Options: `seconds`; `rate` in events/s, open loop (0: full speed); `event_bytes` (100); `keys` (0: without keys);
`many`: use `write_many` with lists of 1,000; `stamp`: write the due time into each event; `windows`: a file with the
times of checkpoints, read at the end; `spans`: a file with spans of time, of each of which the percentiles are wanted;
`ask`: a file that is made when it waits for one of the two.  Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import EVENT_BYTES, Latencies, Ticker, event_at, now, percentiles

WARM_UP_SECONDS = 1.0
GROUP = 500


async def _open_loop(writer: Any, options: dict[str, Any]) -> dict[str, Any]:
    rate, seconds = float(options["rate"]), float(options["seconds"])
    total = int(rate * seconds)
    event, stamp = b"x" * options.get("event_bytes", EVENT_BYTES), options.get("stamp", False)
    done = asyncio.Event()
    failed: list[BaseException] = []
    latencies = Latencies(now() + 0.05, rate)
    state = {"sent": 0, "acked": 0, "late": 0.0}
    start = latencies.start
    write = writer.write

    def acked(first: int, end: int, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if error is not None:
            failed.append(error)
            done.set()
            return
        latencies.acked(first, end, now())
        state["acked"] += end - first
        if state["acked"] == total:
            done.set()

    def tick() -> None:
        first = int(state["sent"])
        moment = now()
        end = min(int((moment - start) * rate), total)
        if end <= first:
            return
        state["late"] = max(state["late"], moment - start - first / rate)
        state["sent"] = end
        if stamp:
            for number in range(first, end):
                write(event_at(start + number / rate))
        else:
            for _ in range(end - first):
                write(event)
        writer.ack().add_done_callback(lambda future: acked(first, end, future))

    ticker = Ticker(tick)
    await asyncio.wait_for(done.wait(), seconds * 3 + 30)
    ticker.stop()
    if failed:
        raise failed[0]
    elapsed = now() - start
    late_ms = round(state["late"] * 1000, 2)
    result: dict[str, Any] = {"events": total, "events_per_s": round(total / elapsed), "generator_late_max_ms": late_ms}
    result |= percentiles(latencies.seconds(WARM_UP_SECONDS))
    if options.get("windows"):
        windows = await _asked(options, "windows")
        result["during_checkpoints"] = percentiles(latencies.during(windows, WARM_UP_SECONDS))
    if options.get("spans"):
        result["spans"] = [percentiles(each) for each in latencies.between(await _asked(options, "spans"))]
    return result


async def _asked(options: dict[str, Any], name: str) -> Any:
    Path(options["ask"]).touch()
    while not Path(options[name]).exists():
        await asyncio.sleep(0.05)
    return json.loads(Path(options[name]).read_text())


async def _unthrottled(writer: Any, options: dict[str, Any]) -> dict[str, Any]:
    event = b"x" * options.get("event_bytes", EVENT_BYTES)
    keys = cycle([f"key-{number}" for number in range(int(options.get("keys", 0)))])
    keyed, many = bool(options.get("keys")), options.get("many", False)
    limit = int(options.get("events", 0)) or sys.maxsize
    group = [event] * (GROUP * 2)
    write = writer.write
    start = now()
    end, sent = start + float(options["seconds"]), 0
    while sent < limit and now() < end:
        if many:
            writer.write_many(group, list(islice(keys, len(group))) if keyed else None)
            sent += len(group)
        elif keyed:
            for key in islice(keys, GROUP):
                write(event, key)
            sent += GROUP
        else:
            for _ in range(GROUP):
                write(event)
            sent += GROUP
        await writer.drain()
    await writer.flush()
    elapsed = now() - start
    return {"events": sent, "seconds": round(elapsed, 2), "events_per_s": round(sent / elapsed)}


async def main(options: dict[str, Any]) -> None:
    """One run."""
    async with await connect(options["controller"]) as client:
        writer = client.writer(options["stream"])
        for _ in range(1000):
            writer.write(event_at(0.0))
        await writer.flush()
        result = await (_open_loop if options.get("rate") else _unthrottled)(writer, options)
        await writer.close()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result["generator_cpu_s"] = round(usage.ru_utime + usage.ru_stime, 2)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
