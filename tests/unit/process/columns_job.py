"""A kind of background job for tests: decodes the events of its stream by the schemas of its node, as a table does.

Each run begins at the head.  Its state is all rows so far, as JSON, in columns that widen with each chunk: {"cut",
"columns", "rows", "bad", "most_versions"}, of which the last is the most schemas that one chunk had.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sarit.core.cuts import to_text
from sarit.schemas.column_types import sql_name
from sarit.serializers.column_choice import choose_columns, open_columns
from sarit.serializers.widening import widened, wider

if TYPE_CHECKING:
    from sarit.controller.jobs import Job, JobKey, Runner, Save
    from sarit.process.job_kinds import JobConfig, JobWorld
    from sarit.serializers.payload_columns import PayloadColumns

POLL_SECONDS = 0.05


def check(_: JobKey, settings: bytes, config: JobConfig) -> None:
    """Take any settings."""


def describe(state: bytes) -> dict[str, str]:
    """Return the state as text."""
    return {"state": state.decode()}


def runner(world: JobWorld) -> Runner:
    """Return what decodes."""

    async def run(job: Job, save: Save) -> None:
        worker = world.env.threads.worker("decode")
        try:
            await _decode(world, job, save, worker)
        finally:
            await worker.close()

    return run


async def _decode(world: JobWorld, job: Job, save: Save, worker: Any) -> None:
    stream, name = world.client.stream(str(job.key.stream)), job.key.stream
    state: dict[str, Any] = (
        json.loads(job.state) if job.state else {"cut": "head", "rows": [], "bad": 0, "chosen": None}
    )
    table = None
    while True:
        await asyncio.sleep(POLL_SECONDS)
        cut = await world.client.stream_cut_tail(name)
        events = [event async for event in await stream.batch(state["cut"], cut)]
        if not events:
            continue
        properties = await stream.properties()

        def columns_now(properties: Any = properties) -> PayloadColumns:
            return open_columns(choose_columns(properties, name, world.schemas, "auto"), world.schemas)

        columns = await worker.run(columns_now)
        table = columns.schema if table is None else wider(table, columns.schema)
        payloads = pa.array([bytes(event) for event in events], pa.binary())
        found = await worker.run(lambda columns=columns, payloads=payloads: columns.read(payloads))
        rows = pa.table(widened(found.columns, columns.schema, table), schema=table).to_pylist()
        good = [row for row, bad in zip(rows, found.bad, strict=True) if not bad]
        numbers = len({payload[:5] for payload in payloads.to_pylist()})
        state = {
            "cut": to_text(cut),
            "rows": [{one.name: row.get(one.name) for one in table} for row in [*state["rows"], *good]],
            "bad": state["bad"] + int(found.bad.sum()),
            "columns": {one.name: sql_name(one.type) for one in table},
            "most_versions": max(numbers, state.get("most_versions", 0)),
        }
        await save(json.dumps(state).encode(), cut)
