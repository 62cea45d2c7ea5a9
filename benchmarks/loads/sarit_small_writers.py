"""Many writers with a connection each and one append in flight: `... '{"controller": ..., "stream": "bench/s", ...}'`.

Options: `segments` of the stream, `connections`, `seconds`, `event_bytes`.  It speaks the wire protocol itself, so that
it takes little of the processors that it shares with the node.  Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from functools import partial
from typing import Any

import uvloop

from benchmarks.loads.open_loop import now, percentiles
from sarit.client.core.addresses import parse_addresses
from sarit.client.core.controller import ControllerClient
from sarit.core.names import SegmentId, StreamName
from sarit.wire.commands import Event, Hello, SetupAppend, encode
from sarit.wire.frames import DATA_APPENDED, FrameReader, append_block_end_header

APPEND_SETUP = 2
WARM_UP_SECONDS = 1.0


class Writer(asyncio.Protocol):
    """One writer: it sends the next append when the last one is acknowledged."""

    def __init__(self, number: int, segment: str, event: bytes) -> None:
        self.appends = 0
        self.seconds: list[float] = []
        self.open = True
        self._id = number.to_bytes(16, "big")
        self._segment = segment
        self._event = event
        self._number = 0
        self._sent = 0.0
        self._reader = FrameReader()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(encode(Hello(17, 5)) + encode(SetupAppend(1, self._id, self._segment, "")))

    def data_received(self, data: bytes) -> None:
        for code, _ in self._reader.feed(data):
            if code == DATA_APPENDED:
                self.appends += 1
                self.seconds.append(now() - self._sent)
                self._append()
            elif code == APPEND_SETUP:
                self._append()
            elif code != Hello.code:
                raise SystemExit(f"the store answered with command {code}")

    def connection_lost(self, error: Exception | None) -> None:
        if self.open:
            raise SystemExit(f"a connection was lost: {error}")

    def _append(self) -> None:
        self._number += 1
        self._sent = now()
        head, tail = append_block_end_header(self._id, len(self._event), 1, self._number, self._number)
        self._transport.write(head + self._event + tail)

    def close(self) -> None:
        """End it."""
        self.open = False
        self._transport.abort()


def _same(writer: Writer) -> Writer:
    return writer


async def _run(options: dict[str, Any]) -> dict[str, Any]:
    controller = ControllerClient(parse_addresses(options["controller"]))
    stream = StreamName(*options["stream"].split("/"))
    segments = [SegmentId(0, number) for number in range(options["segments"])]
    endpoints = [await controller.endpoint(stream, segment) for segment in segments]
    event = encode(Event(b"x" * options["event_bytes"]))
    writers = []
    for number in range(options["connections"]):
        place = number % len(segments)
        made = Writer(number + 1, stream.segment(segments[place]), event)
        await asyncio.get_running_loop().create_connection(partial(_same, made), *endpoints[place])
        writers.append(made)
    await asyncio.sleep(WARM_UP_SECONDS)
    print("ready", flush=True)
    before, begun = sum(writer.appends for writer in writers), now()
    for writer in writers:
        writer.seconds.clear()
    await asyncio.sleep(options["seconds"])
    took, appends = now() - begun, sum(writer.appends for writer in writers) - before
    seconds = [second for writer in writers for second in writer.seconds]
    for writer in writers:
        writer.close()
    await controller.close()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "appends": appends, "appends_per_s": round(appends / took), **percentiles(seconds),
        "generator_cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_run(json.loads(sys.argv[1])))))
