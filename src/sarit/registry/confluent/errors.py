"""The error codes of Confluent's API, and which refusal has which.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import (
    Conflict,
    Corrupt,
    Exists,
    Forbidden,
    Invalid,
    NotFound,
    SaritError,
    Unauthenticated,
)
from sarit.registry.errors import BadSchema, Full, Missing, NotDeleted, NotThere, ReadOnly, Referenced, WrongKind
from sarit.registry.web import json_answer

if TYPE_CHECKING:
    from sarit.registry.web import Answer

BAD_SCHEMA: Final = 42201
BAD_VERSION: Final = 42202
BAD_LEVEL: Final = 42203
BAD_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
REFERENCED: Final = 42206
BAD_SUBJECT: Final = 42208
BAD_RULES: Final = 42210
NO_MODE: Final = 40409

_MISSING: Final = {
    Missing.GROUP: 40401,
    Missing.VERSION: 40402,
    Missing.SCHEMA: 40403,
    Missing.DELETED_GROUP: 40404,
    Missing.DELETED_VERSION: 40406,
    Missing.SETTING: 40408,
}
# The first kind that an error is of decides; a code of five digits begins with the status of the answer.
_CODES: Final[tuple[tuple[type[SaritError], int], ...]] = (
    (BadSchema, BAD_SCHEMA),
    (Full, NOT_PERMITTED),
    (ReadOnly, NOT_PERMITTED),
    (Referenced, REFERENCED),
    (WrongKind, 409),
    (Invalid, BAD_SCHEMA),
    (Unauthenticated, 401),
    (Forbidden, 40301),
    (NotFound, 404),
    (Exists, 409),
    (Conflict, 409),
    (Corrupt, 50001),
)


class Refused(SaritError):
    """A request that this API refuses with one of its codes."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: SaritError) -> int:
    """Return the code of an error; 503 for whatever may pass."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, NotThere):
        return _MISSING.get(error.what, 404)
    if isinstance(error, NotDeleted):
        return 40405 if error.what is Missing.GROUP else 40407
    return next((code for kind, code in _CODES if isinstance(error, kind)), 503)


def error_answer(code: int, message: str) -> Answer:
    """Return the answer that carries a code, with the status that its first three digits are."""
    return json_answer({"error_code": code, "message": message}, code if code < 1000 else code // 100)


class ConfluentFace:
    """The form of Confluent's API (`web.Face`)."""

    name = "confluent"
    media_types = (
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json",
        "application/json",
    )

    def refusal(self, error: SaritError) -> Answer:
        """Return the answer to a request that raised an error."""
        return error_answer(code_of(error), str(error))

    def failure(self, status: int, message: str) -> Answer:
        """Return an answer without a code of its own."""
        return error_answer(status, message)
