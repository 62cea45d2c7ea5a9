"""A registry on tables in memory, with a worker that runs at once."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from sarit.env.ports import Env
from sarit.registry.registry import Registry
from sarit.registry.values import GroupName, NewSchema, Reference
from sarit.schemas.definitions import Kind
from tests.unit.controller.fakes import FakeTables, Faults, ManualClock, SeededRandom

if TYPE_CHECKING:
    from collections.abc import Callable

ORDERS = GroupName("", "orders-value")


class InlineWorker:
    """Runs each call on the event loop, one turn later."""

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        raise NotImplementedError

    async def run(self, call: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return call()

    async def close(self) -> None:
        pass


class InlineThreads:
    def __init__(self) -> None:
        self.begun: list[str] = []

    def worker(self, name: str) -> InlineWorker:
        self.begun.append(name)
        return InlineWorker()


def registry_env(seed: int = 1) -> Env:
    nothing: Any = None
    return Env(ManualClock(), SeededRandom(seed), nothing, InlineThreads(), nothing)


def registry(tables: FakeTables | None = None, installation: str = "", seed: int = 1) -> Registry:
    return Registry(tables if tables is not None else FakeTables(), registry_env(seed), installation)


def beside(tables: FakeTables, faults: Faults | None = None) -> FakeTables:
    """Another controller's handle on the same tables."""
    other = FakeTables(faults)
    other.tables, other._position, other._ever, other._changed = (
        tables.tables, tables._position, tables._ever, tables._changed,
    )  # fmt: skip
    return other


def avro(*fields: str, name: str = "Order", **defaults: Any) -> NewSchema:
    """A record with long fields; those with a default are added by keyword."""
    made: list[dict[str, Any]] = [{"name": field, "type": "long"} for field in fields]
    made += [{"name": field, "type": "long", "default": default} for field, default in defaults.items()]
    return NewSchema(Kind.AVRO, json.dumps({"type": "record", "name": name, "fields": made}))


def using(name: str, *references: Reference) -> NewSchema:
    """A record with a field of each type that it refers to."""
    fields = [{"name": f"f{number}", "type": one.name} for number, one in enumerate(references)]
    return NewSchema(Kind.AVRO, json.dumps({"type": "record", "name": name, "fields": fields}), references)
