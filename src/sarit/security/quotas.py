"""Quotas of scopes and users, and their text format.

A quota belongs to a *subject*: `scope:NAME` or `user:NAME`, or `scope:*` and `user:*` for each scope or user without a
quota of its own.  0 means no limit.  As text, in tables and between processes, a quota is `1 bytes_in=1000 streams=5`:
the version, then its limits, in the order of the fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.names import SYSTEM_SCOPE
from sarit.security.limits import MAX_QUOTA, MIN_QUOTA_BYTES_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCOPE: Final = "scope:"
USER: Final = "user:"
EVERYBODY: Final = "*"
_SUBJECT: Final = re.compile(r"scope:(\*|[A-Za-z0-9.\-]{1,250})|user:(\*|[A-Za-z0-9._@\-]{1,128})")
_VERSION: Final = "1"
_RATES: Final = ("bytes_in", "bytes_out")
_OF_SCOPES: Final = ("streams", "segments", "storage_bytes")
_OF_USERS: Final = ("connections",)


class QuotaExceeded(Invalid):
    """Raised when a quota would be exceeded.  A retry cannot help until something is removed, or the quota raised."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of a subject; 0: no limit.  `bytes_in`, `bytes_out`: bytes per second."""

    bytes_in: int = 0
    bytes_out: int = 0
    streams: int = 0
    segments: int = 0
    connections: int = 0
    storage_bytes: int = 0

    def check(self, subject: str) -> None:
        """Check the quota for a subject.  Raises Invalid: the subject or a limit is wrong, or a limit does not apply to
        such a subject."""
        if _SUBJECT.fullmatch(subject) is None or subject == SCOPE + SYSTEM_SCOPE:
            raise Invalid(f"{subject!r} can have no quota: write scope:NAME or user:NAME, or * for the name")
        for name, value in self.limits():
            if not 0 < value <= MAX_QUOTA:
                raise Invalid(f"{name}={value} is no quota: give 1 to {MAX_QUOTA}")
            if name in _RATES and value < MIN_QUOTA_BYTES_PER_SECOND:
                raise Invalid(f"{name}={value} is too little: clients take a connection that stands still for dead; "
                              f"the least is {MIN_QUOTA_BYTES_PER_SECOND} bytes per second")  # fmt: skip
            if name in (_OF_USERS if subject.startswith(SCOPE) else _OF_SCOPES):
                raise Invalid(f"{name} is counted per {'user' if name in _OF_USERS else 'scope'}, not for {subject}")

    def limits(self) -> list[tuple[str, int]]:
        """Return the names and values of the limits that are set."""
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [(name, value) for name, value in found if value]

    def encode(self) -> str:
        """Encode the quota as text."""
        return " ".join([_VERSION, *(f"{name}={value}" for name, value in self.limits())])

    @staticmethod
    def decode(text: str) -> Quota:
        """Parse a quota.  Raises Invalid."""
        version, *parts = text.split(" ")
        if version != _VERSION:
            raise Invalid(f"a quota has version {version[:20]!r}, and this program knows {_VERSION}")
        try:
            return Quota(**{name: int(value) for name, _, value in (part.partition("=") for part in parts)})
        except (TypeError, ValueError):
            raise Invalid(f"{text[:200]!r} is no quota") from None


NO_QUOTA: Final = Quota()


class Quotas:
    """All quotas in force.  `full`: the scopes whose appends wait, because they are over their storage quota, or hold
    as much for a link as they may."""

    def __init__(self, by_subject: Mapping[str, Quota] | None = None, full: Iterable[str] = ()) -> None:
        self.by_subject = dict(by_subject or {})
        self.full = frozenset(full)

    def __repr__(self) -> str:
        return f"<Quotas of {len(self.by_subject)} subjects, {len(self.full)} scopes full>"

    def __bool__(self) -> bool:
        return bool(self.by_subject or self.full)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quotas) and (self.by_subject, self.full) == (other.by_subject, other.full)

    __hash__ = None  # type: ignore[assignment]  # it is compared, never a key

    def of_scope(self, scope: str) -> Quota:
        """Return the quota of a scope; internal scopes have none."""
        if scope.startswith("_"):
            return NO_QUOTA
        return self.by_subject.get(SCOPE + scope) or self.by_subject.get(SCOPE + EVERYBODY, NO_QUOTA)

    def of_user(self, user: str) -> Quota:
        """Return the quota of a user; an unknown user (empty) has none."""
        if not user:
            return NO_QUOTA
        return self.by_subject.get(USER + user) or self.by_subject.get(USER + EVERYBODY, NO_QUOTA)

    def encode(self) -> list[str]:
        """Encode the quotas as lines: `subject quota`, or `full scope`."""
        lines = [f"{subject} {quota.encode()}" for subject, quota in sorted(self.by_subject.items())]
        return lines + [f"full {scope}" for scope in sorted(self.full)]

    @staticmethod
    def decode(lines: Iterable[str]) -> Quotas:
        """Parse quotas as encoded by `encode`.  Raises Invalid."""
        found: dict[str, Quota] = {}
        full = []
        for line in lines:
            subject, _, rest = line.partition(" ")
            if subject == "full":
                full.append(rest)
            else:
                found[subject] = Quota.decode(rest)
        return Quotas(found, full)
