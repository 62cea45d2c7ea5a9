"""Users of the schema registry: they register, look up and delete schemas at whichever controller answers.

The registry is called in the process of a controller, as the HTTP port of that process does: the call dies with the
process, and its outcome is unknown then.  Every call is recorded for the search of `checkers/register.py`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from checkers import register
from checkers.register import UNKNOWN, Call
from checkers.schemas import DELETED, DONE, MISSING, NOT_DELETED, GroupOfSchemas, check_ids
from sarit.core.errors import Unavailable
from sarit.registry.errors import Missing, NotDeleted, NotThere
from sarit.registry.registry import Registry
from sarit.registry.values import GroupName, NewSchema
from sarit.schemas.compatibility import Policy, PolicyName
from sarit.schemas.definitions import Kind
from simulation.actors.controllers import await_controller, in_process
from simulation.actors.readers import within_deadline
from simulation.world import now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from checkers.log import Violation
    from simulation.cluster import Cluster
    from simulation.world import Process

GROUPS: Final = tuple(GroupName("", name) for name in ("a", "b"))
INSTALLATION: Final = GroupName("", "")
SCHEMAS: Final = ("A", "B", "C", "D")
_CALLS: Final = 25
# A user stops after so many changes without an outcome: each doubles what the search has to try.
_MOST_UNKNOWN: Final = 5


class SchemaUsers:
    """All users, their registries by process, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls: list[Call] = []
        self._registries: dict[Process, Registry] = {}
        self._rng = cluster.rng("schema users")

    def __repr__(self) -> str:
        return f"<SchemaUsers, {len(self.calls)} calls>"

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves."""
        users = range(self.cluster.options.schema_users)
        return [self.cluster.spawn(SchemaUser(self, number).run(), f"schema user {number}") for number in users]

    def check(self) -> list[Violation]:
        """Histories that no order explains."""
        of_groups = [call for call in self.calls if call.on]
        return [*check_ids(self.calls), *register.check(of_groups, _model)]

    async def read_again(self, name: str) -> None:
        """All versions, after the faults, and every schema by its id."""
        if not self.cluster.options.schema_users:
            return
        user = SchemaUser(self, -1)
        await within_deadline(user.read_all(), f"schemas {name}")

    def record(self, process: str, group: str, action: tuple[Any, ...], answer: Any, begun: float) -> None:
        """Record a call that ended now, or whose outcome stays unknown.  `group`: empty for one by an id alone."""
        self.calls.append(Call(process, group, action, answer, begun, inf if answer is UNKNOWN else now()))

    async def place(self) -> tuple[Process, Registry]:
        """A controller that runs: its process and its registry, as soon as there is one."""
        process, controller = await await_controller(self.cluster, self._rng)
        if process not in self._registries:
            self._registries[process] = Registry(controller.catalog.tables, process.env)
        return process, self._registries[process]


def _model(_: Hashable, __: Sequence[Call]) -> register.Model:
    return GroupOfSchemas()


def schema_of(name: str) -> NewSchema:
    """The schema of a name: an enum, which no other name's equals."""
    return NewSchema(Kind.AVRO, json.dumps({"type": "enum", "name": name, "symbols": ["X"]}))


def name_of(text: str) -> str:
    """The name of a schema by its text."""
    return str(json.loads(text)["name"])


class SchemaUser:
    """One user."""

    def __init__(self, users: SchemaUsers, number: int) -> None:
        self._users = users
        self._cluster = users.cluster
        self._rng = users.cluster.rng(f"schema user {number}")
        self._name = f"schema user {number}"
        self._ids: list[int] = []
        self._unknown = 0

    async def run(self) -> None:
        """A drawn number of calls."""
        await self._until_done(lambda registry: registry.set_policy(INSTALLATION, Policy(PolicyName.ALLOW_ANY)))
        for _ in range(_CALLS):
            await asyncio.sleep(self._rng.random() * 4 * self._cluster.options.think_seconds)
            # Most calls at a registry whose table does not serve would tell nothing.
            await self._until_done(lambda registry: registry.namespaces())
            await self._call()
            if self._unknown == _MOST_UNKNOWN:
                return

    async def read_all(self) -> None:
        """Read each group, and each schema by its id."""
        for group in GROUPS:
            await _until_known(partial(self._versions, group))
        for number in sorted({shown for call in self._users.calls for shown in _ids_in(call)}):
            await _until_known(partial(self._schema, number))

    async def _call(self) -> None:
        group, schema, drawn = self._rng.choice(GROUPS), self._rng.choice(SCHEMAS), self._rng.random()
        if drawn < 0.45:
            await self._register(group, schema)
        elif drawn < 0.55:
            await self._find(group, schema)
        elif drawn < 0.65:
            await self._versions(group)
        elif drawn < 0.75 and self._ids:
            await self._schema(self._rng.choice(self._ids))
        elif drawn < 0.95:
            await self._delete(group, self._rng.randint(1, 4), permanent=self._rng.random() < 0.5)
        else:
            await self._delete_group(group, permanent=self._rng.random() < 0.5)

    async def _register(self, group: GroupName, schema: str) -> Any:
        async def call(registry: Registry) -> Any:
            made = await registry.register(group, schema_of(schema))
            self._ids.append(made.id)
            return ((schema, made.id, made.version),)

        return await self._recorded(group.group, ("register", schema), call)

    async def _find(self, group: GroupName, schema: str) -> Any:
        async def call(registry: Registry) -> Any:
            found = await registry.find(group, schema_of(schema))
            return ((schema, found.schema.id, found.version.number),)

        return await self._recorded(group.group, ("find", schema), call)

    async def _versions(self, group: GroupName) -> Any:
        async def call(registry: Registry) -> Any:
            found = await registry.versions(group)
            try:
                names = {one.schema: name_of((await registry.schema(one.schema)).text) for one in found}
            except NotThere:  # deleted since
                raise Unavailable("a version is gone before its schema was read") from None
            return tuple((names[one.schema], one.schema, one.number) for one in found) or MISSING

        return await self._recorded(group.group, ("versions",), call)

    async def _schema(self, number: int) -> Any:
        async def call(registry: Registry) -> Any:
            return name_of((await registry.schema(number)).text)

        return await self._recorded("", ("schema", number), call)

    async def _delete(self, group: GroupName, number: int, *, permanent: bool) -> Any:
        async def call(registry: Registry) -> Any:
            await registry.delete_version(group, number, permanent=permanent)
            self._cluster.trace.probe("schema_deleted")
            return DONE

        return await self._recorded(group.group, ("delete", number, permanent), call)

    async def _delete_group(self, group: GroupName, *, permanent: bool) -> Any:
        async def call(registry: Registry) -> Any:
            await registry.delete_group(group, permanent=permanent)
            return DONE

        return await self._recorded(group.group, ("delete group", permanent), call)

    async def _recorded(self, group: str, action: tuple[Any, ...], call: Callable[[Registry], Awaitable[Any]]) -> Any:
        """Make a call at some controller and record it; the answer, or UNKNOWN."""
        begun = now()
        answer: Any = UNKNOWN
        try:
            answer = await self._in_process(call)
        except NotThere as error:
            answer = _ABSENT[error.what]
        except NotDeleted:
            answer = NOT_DELETED
        except Unavailable as error:
            self._cluster.trace.probe("schema_call_uncertain")
            self._cluster.trace.note("schema user", repr(error))
        finally:
            changes = action[0] in _CHANGES
            self._unknown += changes and answer is UNKNOWN
            if changes or answer is not UNKNOWN:
                self._users.record(self._name, group, action, answer, begun)
        return answer

    async def _until_done(self, call: Callable[[Registry], Awaitable[Any]]) -> None:
        while True:
            with suppress(Unavailable):
                await self._in_process(call)
                return
            await asyncio.sleep(0.1)

    async def _in_process(self, call: Callable[[Registry], Awaitable[Any]]) -> Any:
        """Make a call in the process of a controller.  Raises Unavailable when none runs, or when it dies."""
        process, registry = await self._users.place()
        return await in_process(self._cluster, process, lambda: call(registry), self._name)


_CHANGES: Final = ("register", "delete", "delete group")
_ABSENT: Final = {
    Missing.GROUP: MISSING, Missing.VERSION: MISSING,
    Missing.SCHEMA: MISSING,
    Missing.DELETED_GROUP: DELETED, Missing.DELETED_VERSION: DELETED,
}  # fmt: skip


async def _until_known(call: Callable[[], Awaitable[Any]]) -> None:
    while True:
        if await call() is not UNKNOWN:
            return
        await asyncio.sleep(0.1)


def _ids_in(call: Call) -> list[int]:
    return [shown[1] for shown in call.answer] if isinstance(call.answer, tuple) else []


__all__ = ["GROUPS", "SCHEMAS", "SchemaUsers"]
