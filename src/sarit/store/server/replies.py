"""Maps errors to replies (wire.md par. 5, generic errors).

None instead of a reply means that the connection is closed: the outcome is unknown, or the protocol has no code for the
error.
"""

from __future__ import annotations

from sarit.core.errors import (
    Conflict,
    Corrupt,
    Exists,
    Forbidden,
    Invalid,
    Moved,
    NotFound,
    SaritError,
    Sealed,
    Truncated,
)
from sarit.core.limits import NOT_EXISTS
from sarit.wire import commands as wire
from sarit.wire.damage import damage_reply

_ILLEGAL_ARGUMENT = 0
_REFUSED = 0


def error_reply(error: BaseException, request_id: int, segment: str, offset: int = -1) -> wire.Command | None:
    """Return the reply for `error`; None: close the connection."""
    if isinstance(error, NotFound):
        return wire.NoSuchSegment(request_id, segment, "", offset)
    if isinstance(error, Exists):
        return wire.SegmentAlreadyExists(request_id, segment, "")
    if isinstance(error, Sealed):
        return wire.SegmentIsSealed(request_id, segment, "", offset)
    if isinstance(error, Moved):
        # Leave the host out: this store does not know it for sure, and all clients ask the controller.
        return wire.WrongHost(request_id, segment, "", "")
    if isinstance(error, Truncated):
        return wire.SegmentIsTruncated(request_id, segment, error.start_offset, "", offset)
    if isinstance(error, Invalid):
        return wire.ErrorMessage(request_id, segment, str(error)[:1000], _ILLEGAL_ARGUMENT)
    if isinstance(error, Forbidden):
        return wire.AuthTokenCheckFailed(request_id, str(error), _REFUSED)
    if isinstance(error, Corrupt):
        # Fail only this request: the client would retry a lost connection for minutes, and disturb its other requests.
        return damage_reply(request_id, segment, str(error))
    if isinstance(error, NotImplementedError):
        return wire.OperationUnsupported(request_id, str(error)[:1000], "")
    return None


def table_error_reply(
    error: SaritError, request_id: int, segment: str, offset: int, *, update: bool
) -> wire.Command | None:
    """Return the reply for an error of a table update or removal, as `error_reply` does.

    A wrong version of a missing key is TableKeyDoesNotExist for a removal, but TableKeyBadVersion for an
    update: the Rust client reads the key again only after the latter, the Java client treats both alike."""
    if isinstance(error, Conflict):
        if error.actual == NOT_EXISTS and not update:
            return wire.TableKeyDoesNotExist(request_id, segment, "")
        return wire.TableKeyBadVersion(request_id, segment, "")
    return error_reply(error, request_id, segment, offset)
