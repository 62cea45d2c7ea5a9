"""The loads that measure what something costs: small appends, large ones.  The client is in this process."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sarit.client import aio

# Of a node that `python -c RUN standalone …` starts: its controller and its HTTP port.
READY: Final = re.compile(r"controller (\S+:\d+), store \S+:\d+(?:, HTTP (\S+:\d+))?,")
RUN: Final = "from sarit.cli.main import main; main()"
STREAM: Final = "s/t"
EVENT: Final = b"x" * 100
_BATCH: Final = [EVENT] * 5000
_SMALL_WRITERS: Final = 64
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """What a process has used of processors, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def small(client: aio.Client, appends: int, stream: str = STREAM) -> float:
    """Appends of one event each by 64 writers, each of which waits for every acknowledgement; events per second."""
    await _create(client, stream)

    async def write(number: int) -> None:
        async with client.writer(stream) as writer:
            for _ in range(appends // _SMALL_WRITERS):
                writer.write(EVENT, key=str(number))
                await writer.flush()

    began = time.perf_counter()
    await asyncio.gather(*map(write, range(_SMALL_WRITERS)))
    return appends / (time.perf_counter() - began)


async def large(client: aio.Client, size: int, stream: str = STREAM) -> float:
    """Appends of many events each by one writer at full speed, `size` bytes in sum; bytes per second."""
    await _create(client, stream)
    count = size // (len(EVENT) * len(_BATCH))
    began = time.perf_counter()
    async with client.writer(stream) as writer:
        for _ in range(count):
            writer.write_many(_BATCH)
    return count * len(_BATCH) * len(EVENT) / (time.perf_counter() - began)


async def _create(client: aio.Client, stream: str) -> None:
    await client.create_scope(stream.partition("/")[0])
    await client.create_stream(stream, segments=4)
