"""The faults, one function each: inject it, and return when the system is repaired."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.chaos.node import ChaosNode, SmallDisk, can_inject, fake_time_library, inject

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

MIB: Final = 1 << 20


@dataclass(slots=True)
class Site:
    """The targets of faults; `short`: no fault of more than a few seconds."""

    node: ChaosNode
    disk: SmallDisk | None
    rng: random.Random
    short: bool = False

    def seconds(self, least: float, most: float) -> float:
        """How long to wait."""
        return self.rng.uniform(least, min(most, 2.0) if self.short else most)

    async def wait(self, least: float, most: float) -> None:
        """For drawn seconds."""
        await asyncio.sleep(self.seconds(least, most))

    async def restart(self) -> None:
        """A process without any fault."""
        await self.node.crash()
        await self.node.begin()


async def kill(site: Site) -> None:
    """kill -9 and back."""
    await site.node.crash()
    await site.wait(0, 1)
    await site.node.begin()


async def kill_twice(site: Site) -> None:
    """Killed again right after it is ready: while it flushes, sweeps, and clients come back."""
    await kill(site)
    await site.wait(0, 0.3)
    await kill(site)


async def stop(site: Site) -> None:
    """SIGTERM while clients write."""
    await site.node.end()
    await site.node.begin()


async def pause(site: Site) -> None:
    """The whole process is stopped, for longer than time-outs and shorter than the clients' retry timeout."""
    site.node.signal(signal.SIGSTOP)
    try:
        await site.wait(0.5, site.rng.choice((3.0, 20.0)))
    finally:
        site.node.signal(signal.SIGCONT)


async def pause_and_kill(site: Site) -> None:
    """Stopped, then killed before it continues."""
    site.node.signal(signal.SIGSTOP)
    await site.wait(0.1, 2)
    await kill(site)


_SYNCS = "/^(fdatasync|pwritev2)$"


async def _bad_disk(site: Site, call: str, fault: str) -> None:
    await site.node.crash()
    try:
        await site.node.begin(inject(call, fault))
    except AssertionError:
        await site.node.begin()  # it failed while it opened, and reported that: start it again as an operator would
        return
    await site.wait(1, 6)
    await site.restart()


async def sync_fails(site: Site) -> None:
    """Syncs fail with EIO now and then: of the log (written and synced in one call), of a chunk, of the index."""
    await _bad_disk(site, _SYNCS, f"error=EIO:when={site.rng.randint(5, 60)}+{site.rng.randint(20, 400)}")


async def write_fails(site: Site) -> None:
    """A positioned write fails with EIO or ENOSPC now and then."""
    error = site.rng.choice(("EIO", "ENOSPC"))
    await _bad_disk(
        site, "/^pwrite(64|v2?)$", f"error={error}:when={site.rng.randint(5, 60)}+{site.rng.randint(50, 400)}"
    )


async def disk_lies(site: Site) -> None:
    """fdatasync (of a chunk, of the index) succeeds without effect: harmless for a kill without a power cut."""
    await _bad_disk(site, "fdatasync", "retval=0")


async def slow_disk(site: Site) -> None:
    """Syncs are slow."""
    await _bad_disk(site, _SYNCS, f"delay_enter={site.rng.choice((20_000, 200_000))}")


async def reset(site: Site) -> None:
    """All connections break, a few times."""
    for _ in range(site.rng.randint(1, 4)):
        for proxy in site.node.proxies:
            proxy.reset()
        await site.wait(0, 0.5)


async def stall(site: Site) -> None:
    """Nothing is forwarded for a while; nothing is lost."""
    for proxy in site.node.proxies:
        proxy.stall()
    try:
        await site.wait(0.5, 20)
    finally:
        for proxy in site.node.proxies:
            proxy.flow()


async def half_open(site: Site) -> None:
    """Bytes in one direction are lost without notice; then the connections break."""
    side = site.rng.randint(0, 1)
    for proxy in site.node.proxies:
        proxy.half_open(side)
    await site.wait(0.5, 10)
    for proxy in site.node.proxies:
        proxy.reset()


async def full_disk(site: Site) -> None:
    """The disk is full, or nearly, for some seconds."""
    assert site.disk is not None
    site.disk.fill(site.rng.choice((0, 1, 30, 150)) * MIB)
    try:
        await site.wait(1, 6)
        if site.rng.random() < 0.3:
            await site.node.crash()
            site.disk.empty()
            await site.node.begin()
    finally:
        site.disk.empty()


async def clock_jumps(site: Site) -> None:
    """The wall clock goes an hour ahead, or back."""
    site.node.jump(site.rng.choice((-3600, -5, 5, 3600)))
    await site.wait(0.5, 3)
    if site.rng.random() < 0.5:
        await kill(site)


# How often each is drawn, relative to a kill.
FAULTS: Final[dict[str, tuple[Callable[[Site], Awaitable[None]], int]]] = {
    "kill": (kill, 4),
    "kill_twice": (kill_twice, 2),
    "stop": (stop, 1),
    "pause": (pause, 2),
    "pause_and_kill": (pause_and_kill, 1),
    "sync_fails": (sync_fails, 3),
    "write_fails": (write_fails, 2),
    "disk_lies": (disk_lies, 1),
    "slow_disk": (slow_disk, 1),
    "reset": (reset, 3),
    "stall": (stall, 2),
    "half_open": (half_open, 2),
    "full_disk": (full_disk, 3),
    "clock_jumps": (clock_jumps, 2),
}
_NEED_STRACE: Final = frozenset({"sync_fails", "write_fails", "disk_lies", "slow_disk"})


def possible(disk: SmallDisk | None) -> list[str]:
    """The faults that this machine supports."""
    return [
        name
        for name in FAULTS
        if (name not in _NEED_STRACE or can_inject())
        and (name != "full_disk" or disk is not None)
        and (name != "clock_jumps" or fake_time_library() is not None)
    ]


def draw(site: Site, names: list[str]) -> str:
    """One of `names`, by weight."""
    return site.rng.choices(names, [FAULTS[name][1] for name in names])[0]
