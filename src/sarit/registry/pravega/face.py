"""The form of Pravega's API: which refusal has which status.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import Conflict, Corrupt, Exists, Forbidden, Invalid, NotFound, SaritError, Unauthenticated
from sarit.registry.errors import Missing, NotThere, WrongKind
from sarit.registry.web import json_answer

if TYPE_CHECKING:
    from sarit.registry.web import Answer

# The first kind that an error is of decides; 503 for whatever may pass.
_STATUS: Final[tuple[tuple[type[SaritError], int], ...]] = (
    (Invalid, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Exists, 409),
    (Conflict, 409),
    (Corrupt, 500),
)
_OTHER_FORMAT: Final = 417
_OTHER_TYPE: Final = 409
_NO_CODEC: Final = 412


class PravegaFace:
    """The form of Pravega's API (`web.Face`)."""

    name = "pravega"
    media_types = ("application/json",)

    def refusal(self, error: SaritError) -> Answer:
        """Return the answer to a request that raised an error."""
        return self.failure(status_of(error), str(error))

    def failure(self, status: int, message: str) -> Answer:
        """Return an answer that is an error.  Pravega's clients read its status alone."""
        return json_answer({"error": message}, status)


def status_of(error: SaritError) -> int:
    """Return the status of an error."""
    if isinstance(error, WrongKind):
        return _OTHER_FORMAT if error.what == "kind" else _OTHER_TYPE
    if isinstance(error, NotThere) and error.what is Missing.CODEC:
        return _NO_CODEC
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
