"""Guarantees of the schema registry, checked over a history.  Pure.

The versions of a group are one object of the search of `register.py` (`GroupOfSchemas`).  Ids are counted over all
groups, and are checked without a search (`check_ids`), since groups would be searched as one object otherwise:

| kind | meaning |
|---|---|
| `id-of-two` | one id was shown for two schemas |
| `two-ids` | a schema got another id, although no permanent deletion can have come between |
| `id-gone` | a shown id has no schema, although no permanent deletion has begun |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from checkers.log import Violation
from checkers.register import IMPOSSIBLE, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from checkers.register import Call

MISSING: Final = "missing"
DONE: Final = "done"
DELETED: Final = "deleted"
NOT_DELETED: Final = "not deleted"


@dataclass(frozen=True, slots=True)
class _Version:
    number: int
    schema: str
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    """`next`: the number of the next version, which outlives the group.  `ids`: of the schemas of versions, as far as
    an answer has shown them."""

    versions: tuple[_Version, ...] = ()
    next: int = 1
    ids: tuple[tuple[str, int], ...] = ()

    @property
    def live(self) -> list[_Version]:
        return [one for one in self.versions if not one.deleted]

    def with_versions(self, versions: tuple[_Version, ...]) -> _State:
        held = {one.schema for one in versions}
        return replace(self, versions=versions, ids=tuple(one for one in self.ids if one[0] in held))

    def learned(self, pairs: Iterable[tuple[str, int]]) -> _State | None:
        """The state in which held schemas have these ids; None: they have others."""
        ids = dict(self.ids)
        if any(ids.setdefault(schema, number) != number for schema, number in pairs):
            return None
        return replace(self, ids=tuple(sorted(ids.items())))


class GroupOfSchemas:
    """("register", schema) -> ((schema, id, version),);  ("find", schema) -> the same, or MISSING;

    ("versions",) -> the (schema, id, version) that are not deleted, or MISSING;
    ("delete", version, permanent) -> DONE, or MISSING, DELETED (softly already), NOT_DELETED;
    ("delete group", permanent) -> the same."""

    first: Hashable = _State()

    def step(self, state: _State, action: tuple[Any, ...], answer: Any) -> Any:
        """See `register.Model`."""
        after, expected = getattr(self, f"_{action[0].replace(' ', '_')}")(state, *action[1:])
        if answer is UNKNOWN:
            return after
        if not isinstance(expected, tuple) or not isinstance(answer, tuple):
            return after if answer == expected else IMPOSSIBLE
        if tuple((schema, version) for schema, _, version in answer) != expected:
            return IMPOSSIBLE
        learned = after.learned((schema, number) for schema, number, _ in answer)
        return IMPOSSIBLE if learned is None else learned

    def _register(self, state: _State, schema: str) -> tuple[_State, Any]:
        for one in reversed(state.live):
            if one.schema == schema:
                return state, ((schema, one.number),)
        made = _Version(state.next, schema)
        after = replace(state, versions=(*state.versions, made), next=made.number + 1)
        return after, ((schema, made.number),)

    def _find(self, state: _State, schema: str) -> tuple[_State, Any]:
        for one in reversed(state.live):
            if one.schema == schema:
                return state, ((schema, one.number),)
        return state, MISSING

    def _versions(self, state: _State) -> tuple[_State, Any]:
        return state, tuple((one.schema, one.number) for one in state.live) or MISSING

    def _delete(self, state: _State, number: int, permanent: bool) -> tuple[_State, Any]:
        found = next((one for one in state.versions if one.number == number), None)
        # A group whose versions are all deleted softly is not there for a soft deletion.
        if found is None or not (permanent or state.live):
            return state, MISSING
        if found.deleted != permanent:
            return state, DELETED if found.deleted else NOT_DELETED
        kept = (one for one in state.versions if one is not found or not permanent)
        left = tuple(replace(one, deleted=True) if one is found else one for one in kept)
        return state.with_versions(left), DONE

    def _delete_group(self, state: _State, permanent: bool) -> tuple[_State, Any]:
        if not state.versions:
            return state, MISSING
        if bool(state.live) == permanent:
            return state, NOT_DELETED if permanent else DELETED
        left = () if permanent else tuple(replace(one, deleted=True) for one in state.versions)
        return state.with_versions(left), DONE


def check_ids(calls: Iterable[Call]) -> Iterator[Violation]:
    """Violations of the meaning of ids.  `calls`: of `GroupOfSchemas`, and ("schema", id) -> its schema, or MISSING."""
    by_end = sorted(calls, key=lambda call: call.ended)
    deletions = [call for call in by_end if call.action[0].startswith("delete") and call.action[-1]]
    schemas: dict[int, str] = {}
    ids: dict[str, tuple[int, Call]] = {}

    def deleted_between(first: Call, second: Call) -> bool:
        """Whether a permanent deletion may have come after `first` began and before `second` ended."""
        return any(one.begun <= second.ended and one.ended >= first.begun for one in deletions)

    for call in by_end:
        if call.action[0] == "schema" and call.answer == MISSING:
            if not any(one.begun <= call.ended for one in deletions):
                yield Violation("id-gone", f"{call.process}: id {call.action[1]} has no schema")
            continue
        for schema, number in _shown(call):
            if schemas.setdefault(number, schema) != schema:
                yield Violation("id-of-two", f"{call.process}: id {number} is of {schemas[number]} and of {schema}")
            # By its id alone a schema is found some time after its deletion, too.
            if call.action[0] == "schema":
                continue
            known, since = ids.get(schema, (number, call))
            if known != number and not deleted_between(since, call):
                yield Violation("two-ids", f"{call.process}: {schema} has the ids {known} and {number}")
            ids[schema] = (number, call)


def _shown(call: Call) -> list[tuple[str, int]]:
    if call.action[0] == "schema" and call.answer is not UNKNOWN:
        return [(call.answer, call.action[1])]
    return [(schema, number) for schema, number, _ in call.answer] if isinstance(call.answer, tuple) else []
