"""What the console shows of a controller whose stores are other processes (`admin/console/view.py`).

It knows where each container is placed, asks each store for a sign of life, and has the health that stores report.
Memory and disks of a store are on its own HTTP port."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from sarit.admin.console.view import ContainerView, Overview, Setting, StoreView, TierView
from sarit.admin.reasons import container_of_part
from sarit.core.errors import SaritError
from sarit.env.background import gather
from sarit.process.limits import STORE_SIGN_OF_LIFE_SECONDS
from sarit.process.observation.console_view import (
    DAMAGED,
    hidden_in,
    open_transactions,
    reason_text,
    segment_rates,
    shown_settings,
)
from sarit.wire.commands import GetRates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from sarit.admin.console.view import ClusterView, OpenTransaction, SegmentRate
    from sarit.admin.reasons import Reason
    from sarit.controller.assembly import Controller
    from sarit.coordination.container_map import ContainerMap
    from sarit.core.names import StreamName
    from sarit.process.observation.health import Health
    from sarit.process.shown_option import ShownOption
    from sarit.process.store_calls.store_connections import StoreConnections
    from sarit.security.permissions import Caller

PLACED, MOVING, UNPLACED = "assigned", "moving", "unassigned"
ANSWERS, LEAVING, SILENT = "ok", "leaving", "away"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a container is: the store that serves it, None while there is none; `moving_to`: its next one."""

    store: str | None
    moving_to: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """All containers by number; stores by name, with their addresses.  `leaving`: those that stop soon."""

    places: Sequence[Place]
    stores: Mapping[str, tuple[str, int]]
    leaving: frozenset[str] = frozenset()


def fixed(containers: int, addresses: Sequence[tuple[str, int]]) -> Placement:
    """Container c on store c mod N."""
    stores = {f"store {number}": address for number, address in enumerate(addresses)}
    return Placement([Place(f"store {number % len(addresses)}") for number in range(containers)], stores)


def mapped(record: ContainerMap | None) -> Placement:
    """Return the placement that a container map gives; None: there is no map yet."""
    if record is None:
        return Placement((), {})
    places = [
        Place(record.serving(number), owner if number in record.moving else None)
        for number, owner in enumerate(record.owners)
    ]
    stores = {name: (store.host, store.port) for name, store in record.stores.items()}
    return Placement(places, stores, frozenset(name for name, store in record.stores.items() if store.leaving))


def states_by_reasons(placement: Placement, reasons: Iterable[Reason]) -> dict[int, str]:
    """Return the containers of a node in several processes that are not served, by the codes of the reasons."""
    found: dict[int, str] = {}
    for reason in reasons:
        store, _, _ = reason.part.replace("store-", "store ", 1).partition(", ")
        if reason.ready or store not in placement.stores:
            continue
        number = container_of_part(reason.part)
        of_store = [at for at, place in enumerate(placement.places) if place.store == store]
        for at in of_store if number is None else [number]:
            found.setdefault(at, reason.code)
    return found


def summary(
    placement: Placement, answering: frozenset[str], states: Mapping[int, str]
) -> tuple[list[ContainerView], list[StoreView], list[str]]:
    """Return containers, stores, and what is wrong.

    `answering`: the stores that gave a sign of life.  `states`: of the containers whose state is known, in a word."""
    containers, reasons = [], []
    counts = dict.fromkeys(placement.stores, 0)
    for number, place in enumerate(placement.places):
        if place.store in counts:
            counts[place.store] += 1
        away = place.store not in answering
        placed = MOVING if place.moving_to else states.get(number, PLACED)
        state = UNPLACED if place.store is None else SILENT if away else placed
        containers.append(ContainerView(number, state, "", place.store or "", place.moving_to or ""))
    lost = [container.number for container in containers if container.state == UNPLACED]
    if lost:
        reasons.append(f"no store has container {', '.join(map(str, lost))}")
    stores = []
    for name, (host, port) in placement.stores.items():
        state = SILENT if name not in answering else LEAVING if name in placement.leaving else ANSWERS
        stores.append(StoreView(name, f"{host}:{port}", counts[name], state))
        if state == SILENT:
            reasons.append(f"{name} at {host}:{port} does not answer")
    if not placement.places:
        reasons.append("there is no container map yet")
    return containers, stores, reasons


@dataclass(frozen=True, slots=True)
class ContainerStates:
    """The state of each container by number, in a word; `failed`: something of the cluster is not served."""

    by_number: Sequence[str]
    failed: bool


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """The parts of a controller, for the console.  `tiers`: where data is, by name.

    `states`: of the containers of its cluster, as their stores report them; None: a node in several processes, whose
    reasons of health tell them.  `cluster`: what it needs, for a controller of a cluster."""

    kind: str
    controller: Controller
    stores: StoreConnections
    placement: Callable[[], Placement]
    addresses: Callable[[], Mapping[str, str]]
    tiers: Mapping[str, str]
    options: Sequence[ShownOption]
    states: Callable[[], ContainerStates] | None = None
    cluster: Callable[[], Awaitable[ClusterView]] | None = None


class PlacedView:
    """A controller on stores of other processes."""

    def __init__(self, parts: ControllerParts, health: Health) -> None:
        self._parts = parts
        self._health = health
        self._began_ms = health.clock.wall_ms()

    def __repr__(self) -> str:
        return f"<PlacedView of {self._parts.controller!r}>"

    async def overview(self) -> Overview:
        parts, placement = self._parts, self._parts.placement()
        answers = await gather(*(self._answers(address) for address in placement.stores.values()))
        answering = frozenset(name for name, found in zip(placement.stores, answers, strict=True) if found)
        found = self._health.reasons()
        reported = parts.states() if parts.states is not None else None
        states = states_by_reasons(placement, found) if reported is None else dict(enumerate(reported.by_number))
        containers, stores, reasons = summary(placement, answering, states)
        reasons = [*map(reason_text, found), *reasons]
        failed = not answering or any(reason.code == DAMAGED for reason in found)
        failed = failed or (reported is not None and reported.failed)
        return Overview(
            kind=parts.kind, version=version("sarit"),
            health="failed" if failed else "degraded" if reasons else "ok", reasons=reasons, since_ms=self._began_ms,
            addresses=parts.addresses(), containers=containers, stores=stores,
            tiers=[TierView(name, hidden_in(name, place)) for name, place in parts.tiers.items()],
        )  # fmt: skip

    async def _answers(self, address: tuple[str, int]) -> bool:
        try:
            async with asyncio.timeout(STORE_SIGN_OF_LIFE_SECONDS):
                await self._parts.stores.ask_at(address, partial(GetRates, segments=()), "console")
        except (SaritError, TimeoutError):
            return False
        return True

    async def settings(self) -> Sequence[Setting]:
        return shown_settings(self._parts.options)

    async def open_transactions(self, stream: StreamName, most: int) -> Sequence[OpenTransaction]:
        return await open_transactions(self._parts.controller, self._health.clock, stream, most)

    async def rates(self, segments: Sequence[str]) -> Sequence[SegmentRate]:
        return await segment_rates(self._parts.controller, segments)

    async def cluster(self) -> ClusterView | None:
        return None if self._parts.cluster is None else await self._parts.cluster()

    def may_change(self, caller: Caller, *resources: str) -> bool:
        return self._parts.controller.may_change(caller, *resources)
