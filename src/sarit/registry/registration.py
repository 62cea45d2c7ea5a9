"""Registration of schemas: parse, find what holds the schema already, compare with versions, add a version.

What takes long, the comparison, is done before the change, and is done again only if the group's versions or its policy
have changed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Unavailable
from sarit.registry import decisions, keys, records
from sarit.registry.decisions import Change, RegisterRows, Registration, holding
from sarit.registry.errors import Incompatible
from sarit.registry.limits import COMPARED_AT_ONCE, MAX_CHANGE_ATTEMPTS, READ_FOR_COMPARISON
from sarit.registry.parser import Compared
from sarit.registry.policies import for_version
from sarit.registry.records import NO_NUMBERS, Counters
from sarit.registry.values import Mode
from sarit.schemas.compatibility import PolicyName, Span
from sarit.schemas.limits import MAX_INCOMPATIBILITIES
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Env
    from sarit.registry.changes import Changes
    from sarit.registry.decisions import GroupRows
    from sarit.registry.parser import Parsed, Parser
    from sarit.registry.records import Head
    from sarit.registry.references import References
    from sarit.registry.rows import Rows
    from sarit.registry.values import GroupName, Registered, Version
    from sarit.schemas.compatibility import Policy

_DENIED: Final = "the policy DenyAll allows no schema after the first"


@dataclass(frozen=True, slots=True)
class _Basis:
    """The state of a group for a comparison: as long as it is the same, so are the versions of the group.  Internal."""

    policy: Policy | None
    mode: Mode | None
    next_version: int
    live: int


class _Outdated(Exception):
    """The comparison was made with other versions, or by another policy."""


class Registrations:
    """Adds schemas to groups, and compares schemas with groups."""

    def __init__(self, rows: Rows, changes: Changes, parser: Parser, references: References, env: Env) -> None:
        self._rows = rows
        self._changes = changes
        self._parser = parser
        self._references = references
        self._clock = env.clock

    def __repr__(self) -> str:
        return f"<Registrations in {self._rows!r}>"

    async def register(self, name: GroupName, parsed: Parsed, wanted: Registration) -> Registered:
        """Add a schema to a group.  See `Registry.register`."""
        basis: _Basis | None = None
        for _ in range(MAX_CHANGE_ATTEMPTS):
            rows = await self._read(name, parsed, wanted, Counters())
            found = holding(rows, wanted)
            if found is not None:
                return decisions.register(rows, wanted, 0).answer
            decisions.check_registration(rows, wanted)
            now = _basis(rows.group)
            if now != basis and rows.group.settings.mode is not Mode.IMPORT:
                await self._require_compatible(rows.group, parsed)
            basis = now
            try:
                return await self._changes.make(partial(self._decide, name, parsed, wanted, basis))
            except _Outdated:
                continue
        raise Unavailable(f"group {shown(str(name))} is changed by too many others at once; try again")

    async def kind_refusal(self, head: Head, name: GroupName, parsed: Parsed) -> str:
        """Return why a group takes no schema of that kind and type; an empty text if it does."""
        latest = await self._rows.latest(name, head)
        refusal = decisions.kind_refusal(name, head, latest, parsed.schema, parsed.type)
        return "" if refusal is None else str(refusal)

    async def reasons(
        self, name: GroupName, head: Head, policy: Policy, parsed: Parsed, only: Version | None = None
    ) -> list[str]:  # fmt: skip
        """Return why a policy refuses a schema after the versions of a group; none if it does not.

        `only`: the one version to compare with.  Raises Full (the comparison takes too long), Unavailable."""
        if policy.name is PolicyName.ALLOW_ANY or head.live == 0:
            return []
        if policy.name is PolicyName.DENY_ALL:
            return [_DENIED]
        history = [only] if only is not None else await self._history(name, head, policy, parsed.type)
        newest = history[-1].number if history else 0
        chosen = []
        for version in reversed(history):
            own = for_version(policy, version.number, newest=version.number == newest)
            if own is not None:
                chosen.append((version, own))
        return await self._compare(parsed, chosen)

    async def _require_compatible(self, group: GroupRows, parsed: Parsed) -> None:
        head, policy = group.head, group.settings.policy
        if head is None or policy is None:
            return
        reasons = await self.reasons(group.name, head, policy, parsed)
        if reasons:
            what = shown(str(group.name))
            raise Incompatible(
                f"the policy {policy.name.value} of group {what} refuses the schema: {reasons[0]}", reasons
            )

    async def _decide(
        self, name: GroupName, parsed: Parsed, wanted: Registration, basis: _Basis, counters: Counters
    ) -> Change[Registered]:  # fmt: skip
        rows = await self._read(name, parsed, wanted, counters)
        if holding(rows, wanted) is None:
            if _basis(rows.group) != basis:
                raise _Outdated
            await self._references.require_live(name.namespace, wanted.schema.references)
        return decisions.register(rows, wanted, self._clock.wall_ms())

    async def _read(self, name: GroupName, parsed: Parsed, wanted: Registration, counters: Counters) -> RegisterRows:
        print_key, type_key = keys.fingerprint_key(parsed.fingerprint), keys.type_key(name, wanted.type)
        imported = [] if wanted.id is None else [keys.schema_key(wanted.id, 0), keys.deleted_schema_key(wanted.id)]
        group, found = await self._rows.group_and(name, [print_key, type_key, *imported])
        print_row, type_row, stored, gone = (*found, None, None)[:4]
        id = None if print_row is None else records.decode_id(print_row.value, records.name_of(print_key))
        types = NO_NUMBERS
        if type_row is not None:
            types = records.decode_type_numbers(type_row.value, records.name_of(type_key))
        held: Sequence[Version] = ()
        latest: Version | None = None
        if group.head is not None and (id is not None or group.head.created):
            latest = await self._rows.latest(name, group.head)
            if id is not None and latest is not None and latest.schema == id:
                held = [latest]
            if id is not None and holding(RegisterRows(group, counters, id, held), wanted) is None:
                held = await self._rows.held(id, name, group.head)
        return RegisterRows(
            group, counters, id, held, latest, types, stored is not None, None if gone is None else gone.value[1:]
        )

    async def _history(self, name: GroupName, head: Head, policy: Policy, type: str) -> list[Version]:
        """Return the versions that a policy may compare with, ascending: where each type has a history, those of it."""
        if not head.many_types and all(span in (None, Span.LATEST) for span in policy.spans):
            return await self._rows.some_versions(name, head, [head.latest])
        return [
            one
            for one in await self._rows.versions(name, head)
            if not one.deleted and (not head.many_types or one.type == type)
        ]

    async def _compare(self, parsed: Parsed, chosen: Sequence[tuple[Version, Policy]]) -> list[str]:
        deadline = self._parser.comparison_deadline()
        found: list[str] = []
        for at in range(0, len(chosen), READ_FOR_COMPARISON):
            some = chosen[at : at + READ_FOR_COMPARISON]
            schemas = await self._rows.schemas(version.schema for version, _ in some)
            compared = [
                Compared(version.number, policy, schema, await self._references.of_stored(schema))
                for version, policy in some
                # A schema without rows was deleted since, with its version, so that the change will be outdated.
                if (schema := schemas.get(version.schema)) is not None
            ]
            for first in range(0, len(compared), COMPARED_AT_ONCE):
                few = compared[first : first + COMPARED_AT_ONCE]
                found += await self._parser.reasons(parsed.definition, few, deadline)
                if len(found) >= MAX_INCOMPATIBILITIES:
                    return found[:MAX_INCOMPATIBILITIES]
        return found


def _basis(group: GroupRows) -> _Basis:
    settings, head = group.settings, group.head
    if head is None:
        return _Basis(settings.policy, settings.mode, 0, 0)
    return _Basis(settings.policy, settings.mode, head.numbers.next_version, head.live)
