"""Quotas: rows of one of the controller's tables, which every controller reads again when the table changes.

The first quota creates the table: without quotas this costs one request in QUOTA_INTERVAL_SECONDS.  Every controller
reads the quotas, because each checks what it creates.  One of the controllers gives them to the stores in each round,
so that a store that has just started gets them, and counts the bytes of scopes with a storage quota.  It stores in the
table which scopes are full, so that every controller knows them.

The scopes whose writers wait for a link (`mirror/hold_bounds.py`) are rows of this table, too, by scope and link.

*Counted exactly, checked beforehand.*  Streams and segments are counted when some are about to be created; several
controllers that create some at the same moment may together exceed the quota.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.controller.catalog import scan_whole
from sarit.controller.keys import QUOTAS_TABLE, STREAMS
from sarit.controller.limits import MAX_QUOTAS, QUOTA_FULL_UNTIL, QUOTA_INTERVAL_SECONDS
from sarit.controller.model import codec
from sarit.controller.model.records import State
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Corrupt, Exists, Invalid, NotFound, SaritError
from sarit.core.limits import QUOTA_MEASURE_SECONDS
from sarit.core.repeated_log import RepeatedLog
from sarit.security.quotas import SCOPE, Quota, QuotaExceeded, Quotas
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from sarit.controller.assignment import Assignment
    from sarit.controller.catalog import Catalog
    from sarit.controller.ports import Segments, Tables
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")

_QUOTA: Final = b"q/"
_FULL: Final = b"f/"
_HELD: Final = b"h/"
_NEVER: Final = -1
# The name by which the background work of quotas is assigned to one controller, as a stream's is by the stream's name.
_WORK: Final = "quotas"


@dataclass(frozen=True, slots=True)
class Use:
    """The resources that a scope uses.  `segments`: how many segments of it accept appends."""

    streams: int
    segments: int


class QuotaTable:
    """The table of quotas, and the counts that it bounds."""

    def __init__(
        self, tables: Tables, catalog: Catalog, segments: Segments, env: Env, assignment: Assignment,
        apply: Callable[[Quotas], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        """`apply`: gives quotas to the stores; None: quotas are not enforced."""
        self.quotas = Quotas()
        self.followed = apply is not None
        self._apply = apply
        self._tables = tables
        self._catalog = catalog
        self._segments = segments
        self._clock = env.clock
        self._assignment = assignment
        self._position = _NEVER
        self._used_up: frozenset[str] = frozenset()  # the scopes over their storage quota
        self._held: dict[str, set[str]] = {}  # the scopes whose writers wait for a link, by its id
        self._measure_at = 0.0
        self._repeated = RepeatedLog(_log, env.clock.monotonic, counted=False)

    def __repr__(self) -> str:
        return f"<QuotaTable {self.quotas!r} at {self._position}>"

    # -- following ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read changed quotas and give them to the stores, for ever."""
        while True:
            try:
                await self.round()
            except SaritError as error:  # the known quotas stay in force
                self._repeated.warning("", f"the quotas in force may not be the newest: {error}")
            else:
                self._repeated.ended("")
            await asyncio.sleep(QUOTA_INTERVAL_SECONDS)

    async def round(self) -> None:
        """Read changed quotas.  If the background work of quotas is this controller's, also count the storage of
        scopes, and give the quotas to the stores.  Raises SaritError."""
        if not await self.refresh() or not self._assignment.is_mine(_WORK):
            return
        if self._clock.monotonic() >= self._measure_at:
            self._measure_at = self._clock.monotonic() + QUOTA_MEASURE_SECONDS
            try:
                await self.measure()
            except SaritError as error:  # a store does not answer: the known full scopes stay full
                self._repeated.warning("full", f"the bytes of scopes with a storage quota are not counted: {error}")
            else:
                self._repeated.ended("full")
        if self._apply is not None:
            await self._apply(self.quotas)

    async def refresh(self) -> bool:
        """Read the quotas if they have changed.  Returns whether their table exists.  Raises SaritError."""
        try:
            position = await self._tables.position(QUOTAS_TABLE)
        except NotFound:
            return False
        if position != self._position:
            self.quotas = await self._read()
            self._position = position
        return True

    async def _read(self) -> Quotas:
        by_subject: dict[str, Quota] = {}
        full: list[str] = []
        held: dict[str, set[str]] = {}
        for key, value in await scan_whole(self._tables, QUOTAS_TABLE):
            name = key[len(_QUOTA) :].decode()
            if key.startswith(_FULL):
                full.append(name)
                continue
            if key.startswith(_HELD):
                scope, _, link = name.partition("/")
                held.setdefault(link, set()).add(scope)
                continue
            try:
                by_subject[name] = Quota.decode(value.value.decode())
            except Invalid as error:
                raise Corrupt(f"the quota of {name} is damaged: {error}") from None
        self._used_up, self._held = frozenset(full), held
        return Quotas(by_subject, self._used_up.union(*held.values()))

    async def hold_back(self, link_id: bytes, scopes: Collection[str]) -> None:
        """Have appends to these scopes wait for a link, and to no others any more.  Raises SaritError."""
        link = link_id.hex()
        if scopes:
            with suppress(Exists):
                await self._tables.create(QUOTAS_TABLE)
        await self.refresh()
        before, after = self._held.get(link, set()), set(scopes)
        updates = [
            TableUpdate(_HELD + f"{scope}/{link}".encode(), b"" if scope in after else None, NO_VERSION)
            for scope in sorted(before ^ after)
        ]
        if not updates:
            return
        await self._tables.update(QUOTAS_TABLE, updates)
        await self.refresh()
        if self._apply is not None:
            with suppress(SaritError):  # the next round gives them to the stores
                await self._apply(self.quotas)

    async def change(self, changes: Mapping[str, Quota | None]) -> int:
        """Set quotas, or remove them (None), atomically.  Returns how many were different before.  Raises Invalid."""
        for subject, quota in changes.items():
            (quota or Quota()).check(subject)
            if quota is not None and not quota.limits():
                raise Invalid(f"the quota of {subject} limits nothing: give a limit, or remove it")
        with suppress(Exists):
            await self._tables.create(QUOTAS_TABLE)
        await self.refresh()
        before = self.quotas.by_subject
        if len(before.keys() | changes) > MAX_QUOTAS and any(changes.values()):
            raise Invalid(f"there are {MAX_QUOTAS} quotas, which is the limit: scope:* and user:* are for all others")
        updates = [
            TableUpdate(_QUOTA + subject.encode(), None if quota is None else quota.encode().encode(), NO_VERSION)
            for subject, quota in changes.items()
            if before.get(subject) != quota
        ]
        if updates:
            await self._tables.update(QUOTAS_TABLE, updates)
            self._measure_at = 0.0
            await self.refresh()
            if self._apply is not None:
                with suppress(SaritError):  # the next round gives them to the stores
                    await self._apply(self.quotas)
        return len(updates)

    # -- counts -------------------------------------------------------------------------------------

    async def admit(self, scope: str, new_streams: int, new_segments: int) -> None:
        """Check that a scope may have so many more streams and segments.  Raises QuotaExceeded."""
        quota = self.quotas.of_scope(scope)
        if new_streams and scope in self._used_up:
            raise QuotaExceeded(f"scope {scope} has used its quota of {quota.storage_bytes} bytes: truncate or delete "
                                "streams, or raise it with `sarit quota set`")  # fmt: skip
        if not (quota.streams or quota.segments):
            return
        use = await self.use(scope)
        for what, used, new, most in (
            ("streams", use.streams, new_streams, quota.streams),
            ("segments", use.segments, new_segments, quota.segments),
        ):
            if most and new > 0 and used + new > most:
                raise QuotaExceeded(
                    f"scope {scope} has {used} {what}, and its quota is {most}: {new} more are refused; `sarit quota "
                    "set` raises it"
                )

    async def use(self, scope: str) -> Use:
        """Count a scope's user streams and their segments that accept appends.  Raises NotFound."""
        count = active = 0
        after = b""
        while rows := await self._catalog.scan_once(scope, STREAMS, after):
            after = rows[-1][0]
            for key, value in rows:
                # Do not count internal streams, which the system creates for watermarks and reader groups.
                if not key.startswith(STREAMS + b"_"):
                    record = codec.decode_stream(value.value)
                    count += record.state is not State.DELETING
                    active += len(record.current.segments) if record.state in (State.ACTIVE, State.CREATING) else 0
        return Use(count, active)

    # -- storage ------------------------------------------------------------------------------------

    async def measure(self) -> None:
        """Count the bytes of scopes with a storage quota, and store which are full.  Raises SaritError."""
        limited = [subject.removeprefix(SCOPE) for subject, quota in self.quotas.by_subject.items()
                   if subject.startswith(SCOPE) and quota.storage_bytes]  # fmt: skip
        scopes = set(limited) | self._used_up
        if "*" in scopes:
            scopes |= set(await self._catalog.list_scopes(""))
        updates = []
        for scope in sorted(scopes - {"*"}):
            most, size = self.quotas.of_scope(scope).storage_bytes, 0
            if most:
                size = await self.storage_bytes(scope)
            was = scope in self._used_up
            full = bool(most) and size >= most * (QUOTA_FULL_UNTIL if was else 1)
            if full != was:
                updates.append(TableUpdate(_FULL + scope.encode(), str(size).encode() if full else None, NO_VERSION))
                _log.warning("scope %s %s its storage quota of %d bytes: it has %d; appends %s", scope,
                             "has used" if full else "is below", most, size, "wait" if full else "go on")  # fmt: skip
        if updates:
            await self._tables.update(QUOTAS_TABLE, updates)
            await self.refresh()

    async def storage_bytes(self, scope: str) -> int:
        """Return the bytes of all segments of a scope from their heads on.  Raises SaritError."""
        return await self._segments.scope_bytes(scope)
