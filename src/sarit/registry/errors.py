"""Refusals of the registry, by what a face must answer.  Each is one of `core.errors`, so all of them map."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from sarit.core.errors import Conflict, Exists, Invalid, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence


class Missing(Enum):
    """The kinds of things that a request named and that are not there, or not in the state that it needs."""

    GROUP = "group"
    VERSION = "version"
    SCHEMA = "schema"
    ENCODING = "encoding"
    CODEC = "codec"
    SETTING = "setting"  # the group has no settings of its own
    DELETED_GROUP = "deleted group"  # softly: it must not be
    DELETED_VERSION = "deleted version"


class NotThere(NotFound):
    """Something that a request names does not exist."""

    def __init__(self, what: Missing, message: str) -> None:
        super().__init__(message)
        self.what = what


class NotDeleted(Invalid):
    """A permanent deletion of what is not deleted softly yet.  `what`: GROUP or VERSION."""

    def __init__(self, what: Missing, message: str) -> None:
        super().__init__(message)
        self.what = what


class Incompatible(Conflict):
    """The policy of a group refuses a schema; `reasons`: a sentence each."""

    def __init__(self, message: str, reasons: Sequence[str]) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)


class WrongKind(Invalid):
    """The group holds schemas of another format (`what` is "kind"), or of one other type alone ("type")."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


class BadSchema(Invalid):
    """The text of a schema is malformed, too large, or its references do not resolve."""


class BadReference(BadSchema):
    """A schema refers to a version that does not exist."""


class Referenced(Exists):
    """A version cannot be deleted because schemas refer to it."""


class ReadOnly(Conflict):
    """The mode or the policy (DenyAll) of a group refuses the change."""


class PolicyChanged(Conflict):
    """The policy is not the one that the change expects."""


class Full(Invalid):
    """A bound of `limits.py` is reached: the text names it and what to do."""
