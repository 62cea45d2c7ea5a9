"""The rules of access: rows of one of the controller's tables, which are read again when the table changes.

A row's key is subject, zero byte, resource; its value is the permission.  Every controller reads the rows when it
starts, and asks every RULES_INTERVAL_SECONDS whether the table has changed: after that a change holds everywhere.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.controller.catalog import scan_whole
from sarit.controller.keys import RULES_TABLE
from sarit.controller.limits import MAX_RULES, RULES_INTERVAL_SECONDS
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Corrupt, Exists, Invalid, SaritError
from sarit.core.repeated_log import RepeatedLog
from sarit.security.permissions import Permission, Rule, Rules
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.controller.ports import Tables
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.security")

_NEVER: Final = -1


class RuleTable:
    """Reads and changes the rules.  `use`: called with all rules after each change."""

    def __init__(self, tables: Tables, env: Env, use: Callable[[Rules], None]) -> None:
        self._tables = tables
        self._env = env
        self._use = use
        self._position = _NEVER
        self._repeated = RepeatedLog(_log, env.clock.monotonic, counted=False)

    def __repr__(self) -> str:
        return f"<RuleTable at {self._position}>"

    async def start(self) -> None:
        """Create the table where it is missing, and read it.  Raises SaritError: the controller must not serve then."""
        with suppress(Exists):
            await self._tables.create(RULES_TABLE)
        await self.refresh()

    async def run(self) -> None:
        """Read changed rules, for ever."""
        while True:
            await asyncio.sleep(RULES_INTERVAL_SECONDS)
            try:
                await self.refresh()
            except SaritError as error:  # the rules that are known stay in force
                self._repeated.error("rules", f"the rules of access cannot be read, the old ones are in force: {error}")
            else:
                self._repeated.ended("rules")

    async def refresh(self) -> None:
        """Read the rules if they have changed.  Raises SaritError."""
        # Get the position before the rows: changes made while the rows are read are then read in the next round.
        position = await self._tables.position(RULES_TABLE)
        if position != self._position:
            self._use(Rules(await self.rules()))
            self._position = position

    async def rules(self) -> list[Rule]:
        """Return all rules, in order."""
        return [_decode(key, value.value) for key, value in await scan_whole(self._tables, RULES_TABLE)]

    async def change(self, rules: Sequence[Rule]) -> int:
        """Set rules, or remove those with Permission.NONE, atomically.  Returns how many were different before.  Raises
        Invalid."""
        keys = [_key(rule) for rule in rules]
        if len(set(keys)) != len(keys):
            raise Invalid("a rule is there twice: each subject has one permission on a resource")
        values = [_value(rule) for rule in rules]
        before = await self._tables.get(RULES_TABLE, keys)
        differs = [(old.value if old is not None else None) != value for old, value in zip(before, values, strict=True)]
        if sum(value is not None for value in values) and len(await self.rules()) + len(rules) > MAX_RULES:
            raise Invalid(f"there are {MAX_RULES} rules, which is the limit: give roles permissions instead of users")
        # Skip the removal of missing rules, which the store would refuse.
        updates = [
            TableUpdate(key, value, NO_VERSION)
            for key, value, old in zip(keys, values, before, strict=True)
            if value is not None or old is not None
        ]
        if updates:
            await self._tables.update(RULES_TABLE, updates)
        await self.refresh()
        return sum(differs)


def _key(rule: Rule) -> bytes:
    return f"{rule.subject}\0{rule.pattern}".encode()


def _value(rule: Rule) -> bytes | None:
    return None if rule.permission is Permission.NONE else rule.permission.name.encode()


def _decode(key: bytes, value: bytes) -> Rule:
    subject, _, pattern = key.decode().partition("\0")
    try:
        return Rule.parse(subject, pattern, value.decode())
    except Invalid as error:
        raise Corrupt(f"a rule of access is damaged: {error}") from None
