"""One life of a reader of the proof: `python -m tests.scale.reader '{"controller": ..., "stream": ..., "file": ...}'`.

It continues at the position stored by its last life, stores results and position together, and ends with the stream.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sarit.client.aio import connect
from tests.scale.records import END, EVENT_BYTES, parse, record, recovered

MOST: Final = 50_000


def rows(events: pa.Array) -> Any:
    """Events as rows of bytes.  Raises pa.ArrowInvalid when one has another length."""
    fixed = events.cast(pa.binary(EVENT_BYTES))
    data = np.frombuffer(fixed.buffers()[1], np.uint8)
    return data[fixed.offset * EVENT_BYTES :][: len(fixed) * EVENT_BYTES].reshape(len(fixed), EVENT_BYTES)


async def run(options: dict[str, Any]) -> None:
    """To the end of the stream.  Raises AssertionError on bytes that nobody wrote."""
    path = Path(options["file"])
    before = recovered(path, columns=False).position
    if before == END:
        return
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with (
        await connect(options["controller"]) as client,
        client.reader(options["stream"], before or "head") as reader,
    ):
        while (batch := await reader.read_arrow(MOST)) is not None:
            lives, numbers, whole = parse(rows(batch.column(0)))
            assert whole.all(), f"an event was damaged: {batch.column(0)[int(np.argmin(whole))]}"
            segments = batch.column(1).to_numpy()
            data = record(lives, numbers, segments, str(reader.position()))
            assert os.write(out, data) == len(data)
    nothing = np.empty(0, np.int64)
    os.write(out, record(nothing, nothing, nothing, END))


if __name__ == "__main__":
    import uvloop

    uvloop.run(run(json.loads(sys.argv[1])))
