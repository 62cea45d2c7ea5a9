"""What the console shows of the node that it runs in (`admin/console/view.py`)."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from sarit.admin.console.view import (
    ContainerView,
    DiskView,
    MemoryView,
    OpenTransaction,
    Overview,
    SegmentRate,
    Setting,
    StoreView,
    TierView,
)
from sarit.store.hosting.health import HealthState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.admin.reasons import HealthPort, Reason
    from sarit.controller.assembly import Controller
    from sarit.core.names import StreamName
    from sarit.env.ports import Clock, Env
    from sarit.process.settings import NodeConfig
    from sarit.process.shown_option import ShownOption
    from sarit.security.permissions import Caller
    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.store.metering.load_meters import LoadMeters
    from sarit.store.server.listener import StoreListener
    from sarit.store.store import SegmentStore

DAMAGED: Final = "damaged"
HIDDEN: Final = "(hidden)"
_SECRET_WORDS: Final = ("secret", "password", "token", "key_id", "credential")


def hidden_in(name: str, value: object) -> str:
    """Return the value of an option as text, without secrets: neither its own, nor a user's in a URL."""
    if value is None:
        return ""
    if any(word in name.lower() for word in _SECRET_WORDS):
        return HIDDEN
    text = str(value)
    if "://" in text and "@" in text:
        found = urlsplit(text)
        text = urlunsplit(found._replace(netloc=f"{HIDDEN}@{found.netloc.rpartition('@')[2]}"))
    return text


def settings_of(config: Any, prefix: str = "") -> list[Setting]:
    """Return every field of a configuration by its name; those of its parts behind a dot."""
    found: list[Setting] = []
    for field in fields(config):
        value = getattr(config, field.name)
        name = f"{prefix}{field.name}"
        if hasattr(value, "__dataclass_fields__"):
            found += settings_of(value, f"{name}.")
        else:
            found.append(Setting(name, hidden_in(name, value)))
    return found


async def open_transactions(
    controller: Controller, clock: Clock, stream: StreamName, most: int
) -> Sequence[OpenTransaction]:
    """Return the transactions of a stream that have not ended.  Raises NotFound, Unavailable."""
    now = clock.wall_ms()
    return [
        OpenTransaction(
            str(UUID(int=number)), record.state.name.lower(), record.created_ms, record.lease_ms,
            max(0, record.deadline_ms - now),
        )
        for number, record in await controller.transactions.live(stream, most)
    ]  # fmt: skip


async def segment_rates(controller: Controller, segments: Sequence[str]) -> Sequence[SegmentRate]:
    """Return the rates of segments as their stores measured them, over the shortest window.  Raises Unavailable."""
    return [SegmentRate(found.events[0], found.bytes[0]) for found in await controller.segments.rates(segments)]


def containers_of(store: SegmentStore, name: str) -> list[ContainerView]:
    """Return the containers of one store; `name`: of that store."""
    serving = {container.number: container.state for container in store.serving()}
    found = []
    for health in store.health():
        state = serving.get(health.number)
        dirty = segments = None
        if state is not None:
            dirty, segments = state.dirty.append_bytes, len(state.segments)
        found.append(ContainerView(health.number, health.state.value, health.reason, name, "", dirty, segments))
    return found


def memory_of(budget: MemoryBudget) -> MemoryView:
    """Return the memory of one store."""
    limit = budget.max_dirty_bytes
    return MemoryView(
        budget.charged_bytes, limit // 2, limit, limit + limit // 4, budget.cached_bytes, budget.cache_bytes,
        budget.over_append_limit,
    )  # fmt: skip


def tiers_of(config: NodeConfig) -> list[TierView]:
    """Return where a node keeps its data."""
    places = {
        "log": config.log_url or f"{config.data_dir}/log",
        "chunks": config.storage_url or f"{config.data_dir}/chunks",
        "index": config.index_url or f"{config.data_dir}/index",
    }
    return [TierView(name, hidden_in(name, place)) for name, place in places.items()]


def reason_text(reason: Reason) -> str:
    """For people."""
    return f"{reason.part}: {reason.code}" + (f", {reason.text}" if reason.text else "")


def shown_settings(options: Sequence[ShownOption]) -> list[Setting]:
    """Return the options of the command line; they come without secrets."""
    return [Setting(option.option, hidden_in(option.option, option.value), option.origin) for option in options]


def health_of(health: HealthPort, memory: MemoryView, disks: Sequence[DiskView]) -> tuple[str, list[str]]:
    """In one word, and what is wrong, for people."""
    found = health.reasons()
    codes = " ".join(reason.code for reason in found)
    reasons = list(map(reason_text, found))
    if "disk" not in codes:
        reasons += [f"the disk of {disk.directory} is full: {disk.waits}" for disk in disks if disk.full]
    if memory.throttled and not any(disk.full for disk in disks):
        reasons.append("appends wait: more bytes wait for long-term storage than fit in memory")
    return "failed" if DAMAGED in codes else "degraded" if reasons else "ok", reasons


class Node(Protocol):
    """The parts of a node that the view shows (`standalone.Node`)."""

    config: NodeConfig
    env: Env
    store: SegmentStore
    controller: Controller
    meters: LoadMeters
    server: StoreListener

    @property
    def controller_port(self) -> int: ...

    @property
    def store_port(self) -> int: ...


class StandaloneView:
    """A node in one process."""

    def __init__(self, node: Node, health: HealthPort) -> None:
        self._node = node
        self._health = health
        self._began_ms = node.env.clock.wall_ms()

    def __repr__(self) -> str:
        return f"<StandaloneView of {self._node!r}>"

    async def overview(self) -> Overview:
        node = self._node
        containers = containers_of(node.store, "this node")
        memory = memory_of(node.store.budget)
        disks = [DiskView(found.name, found.free, found.reserve, found.full, found.effect)
                 for found in node.store.disks().values()]  # fmt: skip
        health, reasons = health_of(self._health, memory, disks)
        serving = sum(found.state == HealthState.SERVING.value for found in containers)
        address = f"{node.controller.advertised[0]}:{node.store_port}"
        return Overview(
            kind="node", version=version("sarit"),
            health=health, reasons=reasons,
            since_ms=self._began_ms,
            addresses={"controller": f"{node.config.host}:{node.controller_port}",
                       "store": f"{node.config.host}:{node.store_port}"},
            containers=containers, stores=[StoreView("this node", address, serving)],
            tiers=tiers_of(node.config), disks=disks, memory=memory,
            rates={"events": node.meters.event_rate, "bytes": node.meters.byte_rate},
            connections={"store": node.server.connections},
        )  # fmt: skip

    async def settings(self) -> Sequence[Setting]:
        # A node that a program started has no options: what it runs with is shown then.
        return shown_settings(self._node.config.options) or settings_of(self._node.config)

    async def open_transactions(self, stream: StreamName, most: int) -> Sequence[OpenTransaction]:
        return await open_transactions(self._node.controller, self._node.env.clock, stream, most)

    async def rates(self, segments: Sequence[str]) -> Sequence[SegmentRate]:
        return await segment_rates(self._node.controller, segments)

    async def cluster(self) -> None:
        return None

    def may_change(self, caller: Caller, *resources: str) -> bool:
        return self._node.controller.may_change(caller, *resources)
