"""The members of a group, as a shared state (pure).

Members are numbered in the order of joining; a number is never used again.  Each heartbeat of a member raises its
count.  Format of the stream (a synchronizer's; the values are JSON in UTF-8):

    initial   {"version": 1, "lease_ms": 10000, "next": 3, "members": {"a": {"number": 2, "beats": 17, "data": ""}}}
    update    {"join": "a", "data": ""}      it gets the next number; no effect when the name is taken
              {"leave": 2}                   removes the member of that number
              {"beat": 2}                    its count rises by one
              {"data": "…", "of": 2}         its data is replaced

An update of a removed number has no effect.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Corrupt, Invalid
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.sync.revisioned_stream import Revision

VERSION: Final = 1
MAX_MEMBERS: Final = 200
MAX_NAME_CHARACTERS: Final = 250
MAX_DATA_CHARACTERS: Final = 16_384


@public
@dataclass(frozen=True, slots=True)
class Member:
    """`number`: the order of joining, and the fencing token.  `data`: what the member publishes, e.g. its address."""

    name: str
    number: int
    data: str


@dataclass(frozen=True, slots=True)
class MembershipList:
    """`members` by name, in the order of their numbers; `heartbeats` by number."""

    lease_ms: int
    next_number: int
    members: Mapping[str, Member]
    heartbeats: Mapping[int, int]

    def numbered(self, number: int | None) -> Member | None:
        """Return the member of that number, if it is in the group."""
        return next((member for member in self.members.values() if member.number == number), None)


def empty(lease_ms: int) -> MembershipList:
    """Return a group without members."""
    return MembershipList(lease_ms, 1, {}, {})


def check_member(name: str, data: str) -> None:
    """Raises Invalid when these are too long, or there is no name."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise Invalid(f"a member's name has 1 to {MAX_NAME_CHARACTERS} characters, not {len(name)}")
    if len(data) > MAX_DATA_CHARACTERS:
        raise Invalid(f"a member's data has at most {MAX_DATA_CHARACTERS} characters, not {len(data)}")


# -- bytes ----------------------------------------------------------------------------------------


def _update(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def join(name: str, data: str) -> bytes:
    """Return the update that adds a member."""
    return _update(join=name, data=data)


def leave(number: int) -> bytes:
    """Return the update that removes a member."""
    return _update(leave=number)


def heartbeat(number: int) -> bytes:
    """Return the update that is a member's heartbeat."""
    return _update(beat=number)


def describe(number: int, data: str) -> bytes:
    """Return the update that replaces a member's data."""
    return _update(data=data, of=number)


def encode(current: MembershipList) -> bytes:
    """Return the initial state."""
    members = {
        name: {"number": member.number, "beats": current.heartbeats[member.number], "data": member.data}
        for name, member in current.members.items()
    }
    return _update(version=VERSION, lease_ms=current.lease_ms, next=current.next_number, members=members)


def decode(data: bytes) -> MembershipList:
    """Return the list of `encode`'s bytes.  Raises Corrupt."""
    try:
        found = parse_json(data)
        if found["version"] != VERSION:
            raise Corrupt(f"the group has version {found['version']}; version {VERSION} is known: update this program")
        members = {name: Member(name, int(m["number"]), str(m["data"])) for name, m in found["members"].items()}
        heartbeats = {int(m["number"]): int(m["beats"]) for m in found["members"].values()}
        return MembershipList(int(found["lease_ms"]), int(found["next"]), members, heartbeats)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise Corrupt("these bytes are not the state of a group") from None


def apply(current: MembershipList, update: bytes, _: Revision) -> MembershipList:
    """Return the list after an update.  Raises Corrupt."""
    try:
        found = parse_json(update)
        if "join" in found:
            return _joined(current, str(found["join"]), str(found["data"]))
        # Numbers begin at 1, so none of them is false.
        number = int(found.get("leave") or found.get("beat") or found["of"])
        member = current.numbered(number)
        # Written before its author knew of the removal: no effect.
        if member is None:
            return current
        if "beat" in found:
            return replace(current, heartbeats={**current.heartbeats, number: current.heartbeats[number] + 1})
        if "leave" in found:
            return replace(
                current,
                members={name: other for name, other in current.members.items() if other.number != number},
                heartbeats={other: count for other, count in current.heartbeats.items() if other != number},
            )
        described = replace(member, data=str(found["data"]))
        return replace(current, members={**current.members, member.name: described})
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise Corrupt("this is not an update of a group") from None


def _joined(current: MembershipList, name: str, data: str) -> MembershipList:
    # The name is taken: who holds it stays.
    if name in current.members:
        return current
    number = current.next_number
    return replace(
        current,
        next_number=number + 1,
        members={**current.members, name: Member(name, number, data)},
        heartbeats={**current.heartbeats, number: 0},
    )
