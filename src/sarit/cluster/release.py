"""Checks that the release of a process may serve its cluster, and that its clock agrees with ZooKeeper's.

A register of the cluster has the newest release that has served it, as `0.4`.  A process may join if it is of that
release, of the one before, or of the one after, which is the newest then.  So rolling upgrades to the next release and
back are possible, and no release that is older reads what a newer one has written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sarit.cluster.limits import CLOCK_WARNING_SECONDS
from sarit.core.errors import Conflict, Exists, Invalid

if TYPE_CHECKING:
    from sarit.coordination.port import Registers

RELEASE: Final = "release"

_log = logging.getLogger("sarit.cluster")


def _parts(release: str) -> tuple[int, int]:
    major, minor, *_ = (*release.split("."), "0")
    try:
        return int(major), int(minor)
    except ValueError:
        raise Invalid(f"{release!r} is no release of Sarit, as 0.4.0") from None


def _is_next(newer: tuple[int, int], older: tuple[int, int]) -> bool:
    return newer == (older[0], older[1] + 1) or newer == (older[0] + 1, 0)


def check_release(own: str, highest: str) -> None:
    """Check a release against `highest`, the newest that has served the cluster.  Raises Invalid: they are more than
    one release apart."""
    mine, newest = _parts(own), _parts(highest)
    if mine == newest or _is_next(mine, newest) or _is_next(newest, mine):
        return
    shown = f"{newest[0]}.{newest[1]}"
    if mine < newest:
        before = f"{newest[0]}.{newest[1] - 1}" if newest[1] else f"{newest[0] - 1}.x, the last,"
        raise Invalid(f"release {shown} has served this cluster, and this is {own}: run release {before} or newer")
    first = f"{newest[0]}.{newest[1] + 1}" if mine[0] == newest[0] else f"{newest[0] + 1}.0"
    raise Invalid(
        f"release {shown} was the newest to serve this cluster, and this is {own}: run release {first} first, "
        "on all its machines"
    )


async def raise_release(registers: Registers, own: str) -> None:
    """Check the release of this process, and store it if it is the newest.  Raises Invalid, Unavailable."""
    mine = _parts(own)
    while True:
        found = await registers.get(RELEASE)
        if found is not None:
            highest = found.value.decode(errors="replace")
            check_release(own, highest)
            if mine <= _parts(highest):
                return
        value = f"{mine[0]}.{mine[1]}".encode()
        try:
            if found is None:
                await registers.create(RELEASE, value)
            else:
                await registers.set(RELEASE, value, found.version)
        except (Exists, Conflict):
            continue
        return


def clocks_apart_ms(before_ms: int, server_ms: int, after_ms: int) -> int:
    """Return how many ms our clock is ahead of a server's; negative: behind.  `server_ms` was read between the other
    two times, which are ours."""
    return before_ms - server_ms if server_ms < before_ms else min(0, after_ms - server_ms)


def check_clock(before_ms: int, server_ms: int, after_ms: int) -> None:
    """Log a warning if our clock differs much from ZooKeeper's.  `server_ms` was read between the two others."""
    apart = clocks_apart_ms(before_ms, server_ms, after_ms)
    if abs(apart) > CLOCK_WARNING_SECONDS * 1000:
        _log.warning(
            "the clock of this machine is %.0f s %s that of ZooKeeper: data and leases are safe, but retention by "
            "time, `cut_at` and the times of records are wrong by that; let NTP set the clocks",
            abs(apart) / 1000,
            "ahead of" if apart > 0 else "behind",
        )
