"""Answers that refuse a request.  `stack`: a text for people; ours is empty.  Texts that are too long are cut.

`offset`: the offset of the request, if it had one, by which the Java client finds the read that failed.
"""

from sarit.wire.commands.registry import Command, command
from sarit.wire.primitives import Int, Long, Prose, Text, Uuid


@command(50)
class WrongHost(Command):
    """The refusal of a store that does not own the segment's container."""

    request_id: Long
    segment: Text
    correct_host: Text
    stack: Prose = ""


@command(51)
class SegmentIsSealed(Command):
    """The segment is sealed.  `offset`: for an append, its event number."""

    request_id: Long
    segment: Text
    stack: Prose = ""
    offset: Long = -1


@command(52)
class SegmentAlreadyExists(Command):
    """The segment exists already, and nothing was created."""

    request_id: Long
    segment: Text
    stack: Prose = ""


@command(53)
class NoSuchSegment(Command):
    """The segment never existed, or was deleted."""

    request_id: Long
    segment: Text
    stack: Prose = ""
    offset: Long = -1


@command(55)
class InvalidEventNumber(Command):
    """The writer's event number was not the expected one.  The store must close the connection after this answer, or
    the Rust client hangs."""

    writer_id: Uuid
    request_id: Long
    stack: Prose = ""
    event_number: Long = -1


@command(56)
class SegmentIsTruncated(Command):
    """Bytes below `start_offset` were truncated; also used for an offset that is not the expected one."""

    request_id: Long
    segment: Text
    start_offset: Long
    stack: Prose = ""
    offset: Long = -1


@command(57)
class OperationUnsupported(Command):
    """The store does not support the requested operation."""

    request_id: Long
    operation_name: Prose
    stack: Prose = ""


@command(60)
class AuthTokenCheckFailed(Command):
    """The token is refused.  `error_code`: -1 unspecified, 0 refused, 1 expired; others make the Rust client panic."""

    request_id: Long
    stack: Prose
    error_code: Int


@command(61)
class ErrorMessage(Command):
    """An error with a text.  `error_code`: -1 unspecified, 0 illegal argument."""

    request_id: Long
    segment: Text
    message: Prose
    error_code: Int


@command(80)
class TableSegmentNotEmpty(Command):
    """A refusal to delete a table segment that is not empty."""

    request_id: Long
    segment: Text
    stack: Prose


@command(81)
class TableKeyDoesNotExist(Command):
    """A key that does not exist was expected to have a version."""

    request_id: Long
    segment: Text
    stack: Prose


@command(82)
class TableKeyBadVersion(Command):
    """A key has another version than expected."""

    request_id: Long
    segment: Text
    stack: Prose
