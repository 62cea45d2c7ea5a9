"""Claims that one type reads another, which rest on claims about the types inside them.

A claim has reasons of its own why it is false, claims that must all be true, and claims of which one must be.  Every
claim counts as true until a reason is found, and each reason is carried to the claims that rest on the one it was found
for: so types within themselves need no assumption that may turn out wrong later.  Nothing recurses.  Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sarit.schemas.limits import MAX_INCOMPATIBILITIES

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATH_SHOWN: Final = 400


@dataclass(slots=True, eq=False, repr=False)
class Claim:
    """A claim.  `reasons`: a path from it and a sentence each.  `all_of`, `any_of`: paths from it, and claims there.

    `none`: the sentence for the case that no claim of `any_of` is true.  `holds` is valid after `resolve_claims`."""

    reasons: list[tuple[str, str]] = field(default_factory=list)
    all_of: list[tuple[str, Claim]] = field(default_factory=list)
    any_of: list[tuple[str, Claim]] = field(default_factory=list)
    none: str = ""
    holds: bool = True
    _needed_by: list[Claim] = field(default_factory=list)
    _chosen_by: list[Claim] = field(default_factory=list)
    _choices: int = 0  # claims of `any_of` that are true

    def need(self, path: str, inner: Claim) -> None:
        """Add one of the claims that must all be true."""
        self.all_of.append((path, inner))
        inner._needed_by.append(self)

    def choose(self, path: str, inner: Claim) -> None:
        """Add one of the claims of which one must be true."""
        self.any_of.append((path, inner))
        inner._chosen_by.append(self)
        self._choices += 1


def resolve_claims(claims: Iterable[Claim]) -> None:
    """Set `holds` of claims, which are all that these rest on."""
    false = [claim for claim in claims if claim.reasons]
    for claim in false:
        claim.holds = False
    while false:
        claim = false.pop()
        for user in claim._chosen_by:
            user._choices -= 1
        for user in (*claim._needed_by, *(one for one in claim._chosen_by if not one._choices)):
            if user.holds:
                user.holds = False
                false.append(user)


def reasons_of(first: Claim) -> list[str]:
    """Return the reasons of all claims that make the first one false, nearest first, each claim once.

    At most `MAX_INCOMPATIBILITIES`; none if it is true."""
    if first.holds:
        return []
    found: list[str] = []
    seen = {id(first)}
    left = deque([("", first)])
    while left and len(found) < MAX_INCOMPATIBILITIES:
        path, claim = left.popleft()
        path = path if len(path) <= _PATH_SHOWN else f"...{path[-_PATH_SHOWN:]}"
        path = path.encode("ascii", "backslashreplace").decode()
        found += [f"{(path + place) or '/'}: {why}" for place, why in claim.reasons]
        inner = claim.all_of
        if claim.any_of and not claim._choices:
            # A choice that was reported is a type around this one.
            if any(id(one) not in seen for _, one in claim.any_of):
                found.append(f"{path or '/'}: {claim.none}")
            inner = claim.any_of + claim.all_of
        for place, one in inner:
            if not one.holds and id(one) not in seen:
                seen.add(id(one))
                left.append((path + place, one))
    assert found, "a claim is false for a reason"
    return found[:MAX_INCOMPATIBILITIES]
