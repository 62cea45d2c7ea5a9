"""A kind of background job for tests: counts the events of its stream, a chunk at a time, and reports as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from sarit.core.cuts import to_text
from sarit.core.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from sarit.controller.jobs import Job, JobKey, Runner, Save
    from sarit.process.job_kinds import JobConfig, JobWorld

POLL_SECONDS = 0.05


def check(_: JobKey, settings: bytes, config: JobConfig) -> None:
    """Check the settings: `until` and perhaps `raises`.  Raises Invalid."""
    chosen = json.loads(settings)
    if chosen.get("raises") == "check":
        raise TypeError("a defect")
    if "until" not in chosen:
        raise Invalid(f"a count needs 'until'; catalogs: {', '.join(config.catalogs) or 'none'}")


def describe(state: bytes) -> dict[str, str]:
    """Return how many events were counted."""
    return {"events": str(json.loads(state)["events"])}


def runner(world: JobWorld) -> Runner:
    """Return what counts."""

    async def run(job: Job, save: Save) -> None:
        settings = json.loads(job.settings)
        stream = world.client.stream(str(job.key.stream))
        state = json.loads(job.state) if job.state else {"events": 0, "cut": "head"}
        while state["events"] < settings["until"]:
            cut = await world.client.stream_cut_tail(job.key.stream)
            state["events"] += len([event async for event in await stream.batch(state["cut"], cut)])
            state["cut"] = to_text(cut)
            await save(json.dumps(state).encode(), cut)
            if raises := settings.get("raises"):
                raise {
                    "unavailable": Unavailable("the warehouse is away"),
                    "exit": SystemExit(3),
                    "cancelled": asyncio.CancelledError(),
                }.get(raises, ValueError("a defect"))
            await asyncio.sleep(POLL_SECONDS)

    return run
