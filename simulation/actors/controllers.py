"""Controllers that run in the simulated processes, and calls within those processes: a call dies with its process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import Unavailable
from simulation.fleet import Fleet

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from sarit.controller.assembly import Controller
    from simulation.cluster import Cluster
    from simulation.world import Process

T = TypeVar("T")


def running_controllers(cluster: Cluster) -> list[tuple[Process, Controller]]:
    """The controllers that have started, and their processes."""
    if not isinstance(cluster, Fleet):
        process = cluster.machine.process
        return [] if process is None or cluster.node is None else [(process, cluster.node.controller)]
    return [
        (one.machine.process, one.controller.controller)
        for one in cluster.controllers
        if one.machine.process is not None and one.controller is not None
    ]


def running_controller(cluster: Cluster, rng: random.Random) -> tuple[Process, Controller] | None:
    """A controller that has started, and its process; None: there is none."""
    running = running_controllers(cluster)
    # One node is not drawn.
    return rng.choice(running) if isinstance(cluster, Fleet) and running else next(iter(running), None)


def controller_of(cluster: Cluster, process: Process) -> Controller:
    """The controller of a process.  Raises Unavailable: it is not known to serve yet."""
    for running, controller in running_controllers(cluster):
        if running is process:
            return controller
    raise Unavailable("the controller starts")


async def await_controller(cluster: Cluster, rng: random.Random) -> tuple[Process, Controller]:
    """A controller that has started, and its process, as soon as there is one."""
    while True:
        place = running_controller(cluster, rng)
        if place is not None:
            return place
        await asyncio.sleep(0.05)


async def in_process(cluster: Cluster, process: Process, call: Callable[[], Awaitable[T]], who: str) -> T:
    """Make a call in a process.  Raises what `call` raises, and Unavailable: the process has died."""

    async def called() -> T:
        return await call()

    task = process.spawn(called(), f"{who} at {process.machine.address}")
    await cluster.ended_or_dead(process, task)
    if process.dead or task.cancelled():
        raise Unavailable("the process has died")
    return task.result()


__all__ = ["await_controller", "controller_of", "in_process", "running_controller", "running_controllers"]
