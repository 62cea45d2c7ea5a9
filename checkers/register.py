"""Linearizability: is there a sequential order of the calls that explains every answer?  Pure.

Each call takes effect at one moment between its beginning and its end.  A call whose outcome is unknown (`ended`
infinite, `answer` UNKNOWN) takes effect at some moment after its beginning, or never.

The search is Wing and Gong's (1993) with the memoization of Lowe (2017): depth first over the calls that may come next,
never twice with the same calls done and the same state.  Calls are numbered by their ends, so that a set of calls is
one integer, the earliest end among those not done is its lowest zero, and the calls that may come next are those begun
before that end.  Objects that do not interact (`Call.on`) are searched apart.

An object is a `Model`: a first state, and what a call makes of a state given its answer.  States must be hashable.
Models here: the value of an attribute; the bytes of a segment under conditional appends, with and without sealing; a
table under atomic conditional batches.  The state of a segment is its length and a chained hash over its content: of
constant size, yet it checks every byte (the idea is s2's).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

UNKNOWN: Final = "unknown"
IMPOSSIBLE: Final = object()
_MOST_STATES: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """One call on the object `on`.  `answer` UNKNOWN goes with `ended` infinite."""

    process: str
    on: Hashable
    action: tuple[Any, ...]
    answer: Any
    begun: float
    ended: float


class Model(Protocol):
    """The sequential specification of an object."""

    first: Hashable

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """The state after `action`, IMPOSSIBLE when it would not have answered `answer`."""


class Exhausted(Exception):
    """The search was given up after too many states.  The history may be right or wrong."""


def check(calls: Iterable[Call], model_of: Callable[[Hashable, Sequence[Call]], Model]) -> list[Violation]:
    """One violation for each object whose calls have no order.  Raises Exhausted."""
    by_object: dict[Hashable, list[Call]] = {}
    for call in calls:
        by_object.setdefault(call.on, []).append(call)
    violations = []
    for on, mine in by_object.items():
        try:
            stuck = search(mine, model_of(on, mine))
        except Ambiguous as error:
            violations.append(Violation("ambiguous", f"{on}: {error}"))
            continue
        if stuck is not None:
            shown = "; ".join(f"{call.process} {call.action} -> {call.answer}" for call in stuck)
            violations.append(Violation("not-linearizable", f"{on}: after {len(mine)} calls, none fits next: {shown}"))
    return violations


def search(calls: Sequence[Call], model: Model) -> list[Call] | None:
    """None when an order exists; else the calls that could not come next where the search got furthest."""
    ordered = sorted(calls, key=lambda call: (call.ended, call.begun))
    definite = sum(call.ended != inf for call in ordered)
    goal = (1 << definite) - 1
    eligible = _eligible(ordered)
    furthest, furthest_done = 0, -1
    seen: set[tuple[int, Any]] = set()
    stack: list[tuple[int, Any]] = [(0, model.first)]
    while stack:
        done, state = stack.pop()
        if done & goal == goal:
            return None
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) > _MOST_STATES:
            raise Exhausted(f"{len(calls)} calls led to more than {_MOST_STATES} states")
        if (count := (done & goal).bit_count()) > furthest_done:
            furthest, furthest_done = done, count
        open_calls = eligible[_lowest_zero(done)] & ~done
        while open_calls:
            lowest = open_calls & -open_calls
            open_calls ^= lowest
            call = ordered[lowest.bit_length() - 1]
            after = model.step(state, call.action, call.answer)
            if after is IMPOSSIBLE or (call.answer is UNKNOWN and after == state):
                continue  # an unknown call without effect: the same as one that never happened
            stack.append((done | lowest, after))
    open_calls = eligible[_lowest_zero(furthest)] & ~furthest
    return [call for at, call in enumerate(ordered) if open_calls >> at & 1]


def _lowest_zero(mask: int) -> int:
    return (~mask & (mask + 1)).bit_length() - 1


def _eligible(ordered: Sequence[Call]) -> list[int]:
    """For each call (they are in the order of their ends): which begin before it ends."""
    by_begin = sorted(range(len(ordered)), key=lambda at: ordered[at].begun)
    out, mask, next_at = [], 0, 0
    for call in ordered:
        while next_at < len(by_begin) and ordered[by_begin[next_at]].begun <= call.ended:
            mask |= 1 << by_begin[next_at]
            next_at += 1
        out.append(mask)
    return out


class Cell:
    """An attribute: ("get",) -> value; ("set", expected, value) -> whether it was as expected."""

    def __init__(self, first: Hashable) -> None:
        self.first = first

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """See `Model`."""
        if action[0] == "get":
            return state if answer in (UNKNOWN, state) else IMPOSSIBLE
        _, expected, value = action
        if answer is UNKNOWN:
            return value if state == expected else state
        if answer != (state == expected):
            return IMPOSSIBLE
        return value if answer else state


def chained(before: bytes, data: bytes) -> bytes:
    """The hash of everything up to and including `data`, given the hash of everything before it."""
    return blake2b(data, key=before, digest_size=16).digest()


NOTHING: Final = bytes(16)


class ConditionalLog:
    """A segment: ("append", expected length, data) -> whether it was that long; ("length",) -> length;

    ("read",) -> (length, chained hash of its appends)."""

    first: Hashable = (0, NOTHING)

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """See `Model`."""
        length, content = state
        if action[0] == "length":
            return state if answer in (UNKNOWN, length) else IMPOSSIBLE
        if action[0] == "read":
            return state if answer in (UNKNOWN, state) else IMPOSSIBLE
        _, expected, data = action
        fits = length == expected
        if answer is not UNKNOWN and answer != fits:
            return IMPOSSIBLE
        return (length + len(data), chained(content, data)) if fits else state


class SealableLog:
    """As `ConditionalLog`, and ("seal",) -> True, after which an append is answered SEALED, and ("info",) -> (length,

    whether it is sealed)."""

    SEALED: Final = "sealed"
    first: Hashable = (False, ConditionalLog.first)

    def __init__(self) -> None:
        self._log = ConditionalLog()

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """See `Model`."""
        sealed, log = state
        if action[0] == "seal":
            return (True, log)
        if action[0] == "info":
            return state if answer in (UNKNOWN, (log[0], sealed)) else IMPOSSIBLE
        if action[0] == "append" and (sealed or answer == self.SEALED):
            return state if sealed and answer in (UNKNOWN, self.SEALED) else IMPOSSIBLE
        after = self._log.step(log, action, answer)
        return IMPOSSIBLE if after is IMPOSSIBLE else (sealed, after)


class Ambiguous(Exception):
    """The answers contradict each other in any order."""


class VersionedTable:
    """A table: ("update", ((key, value or None, expected), ...)) -> versions, or None when refused;

    ("get", keys) -> ((value, version) or None, ...).  `expected` is a version, ANY or ABSENT.  No value is put twice,
    so a value identifies its version, which is learned from all answers before the search.
    """

    first: Hashable = ()
    ANY: Final = "any"
    ABSENT: Final = "absent"

    def __init__(self, calls: Sequence[Call]) -> None:
        self._versions: dict[Any, int] = {}
        for call in calls:
            if call.answer in (UNKNOWN, None):
                continue
            if call.action[0] == "get":
                found = [entry for entry in call.answer if entry is not None]
            else:
                changes = call.action[1]
                found = [(value, version) for (_, value, _), version in zip(changes, call.answer, strict=True)]
            for value, version in found:
                if value is not None and self._versions.setdefault(value, version) != version:
                    raise Ambiguous(f"{value!r} has versions {self._versions[value]} and {version}")

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """See `Model`."""
        table = dict(state)
        if action[0] == "get":
            if answer is UNKNOWN:
                return state
            shown = tuple(None if entry is None else entry[0] for entry in answer)
            return state if shown == tuple(table.get(key) for key in action[1]) else IMPOSSIBLE
        fits = all(self._fits(table.get(key), expected) for key, _, expected in action[1])
        if answer is not UNKNOWN and (answer is not None) != fits:
            return IMPOSSIBLE
        if not fits:
            return state
        for key, value, _ in action[1]:
            table.pop(key, None)
            if value is not None:
                table[key] = value
        return tuple(sorted(table.items()))

    def _fits(self, value: Any, expected: Any) -> bool:
        if expected == self.ANY:
            return True
        if expected == self.ABSENT:
            return value is None
        return value is not None and self._versions.get(value) == expected
