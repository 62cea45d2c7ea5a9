"""One life of a member of the proof's reader group: `python -m tests.scale.group_reader OPTIONS` (JSON).

It declares its last life offline at the position stored last, joins under the same name, and stores the events of each
batch together with the position after them, until the group has read everything.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sarit.client.aio import connect
from sarit.client.groups.position import Position
from sarit.client.groups.reader import CheckpointEvent
from tests.scale.reader import rows
from tests.scale.records import END, parse, record, recovered

if TYPE_CHECKING:
    from sarit.client.aio import Client
    from sarit.client.groups.reader import ArrowBatch, GroupReader


def stored(found: ArrowBatch) -> bytes:
    """A batch as a record; its position says where in the segment it begins.  Raises AssertionError on damage."""
    lives, numbers, whole = parse(rows(found.events.column(0)))
    assert whole.all(), f"an event was damaged: {found.events.column(0)[int(np.argmin(whole))]}"
    segments = found.events.column(1).to_numpy()
    return record(lives, numbers, segments, f"{found.events.column(2)[0]}:{found.position.to_bytes().hex()}")


async def _join(client: Client, options: dict[str, Any], before: str) -> GroupReader:
    group = await client.reader_groups.open(options["group"])
    last = Position.from_bytes(bytes.fromhex(before.partition(":")[2])) if before else None
    await group.reader_offline(options["name"], last)
    return await group.reader(options["name"])


async def run(options: dict[str, Any]) -> None:
    """Until the group has read everything."""
    path = Path(options["file"])
    before = recovered(path, columns=False).position
    if before == END:
        return
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with await connect(options["controller"]) as client, await _join(client, options, before) as reader:
        while (found := await reader.read_arrow()) is not None:
            if not isinstance(found, CheckpointEvent):
                data = stored(found)
                assert os.write(out, data) == len(data)
    nothing = np.empty(0, np.int64)
    os.write(out, record(nothing, nothing, nothing, END))


if __name__ == "__main__":
    import uvloop

    uvloop.run(run(json.loads(sys.argv[1])))
