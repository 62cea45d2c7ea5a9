"""Answers that say no.  `stack` is for people ("" from us); prose that is too long is cut.

`offset` is the request's, where it had one: the Java client finds the read that failed by it.
"""

from sarit.wire.commands.registry import Command, command
from sarit.wire.primitives import Int, Long, Prose, Text, Uuid


@command(50)
class WrongHost(Command):
    """Another store owns the segment."""

    request_id: Long
    segment: Text
    correct_host: Text
    stack: Prose = ""


@command(51)
class SegmentIsSealed(Command):
    """To an append `offset` is its event number."""

    request_id: Long
    segment: Text
    stack: Prose = ""
    offset: Long = -1


@command(52)
class SegmentAlreadyExists(Command):
    """Nothing was created."""

    request_id: Long
    segment: Text
    stack: Prose = ""


@command(53)
class NoSuchSegment(Command):
    """Never was, or is deleted."""

    request_id: Long
    segment: Text
    stack: Prose = ""
    offset: Long = -1


@command(55)
class InvalidEventNumber(Command):
    """The writer's number was not the one expected.  Close the connection after it: the Rust client hangs otherwise."""

    writer_id: Uuid
    request_id: Long
    stack: Prose = ""
    event_number: Long = -1


@command(56)
class SegmentIsTruncated(Command):
    """Bytes below `start_offset` are gone; also: an offset is not what was expected."""

    request_id: Long
    segment: Text
    start_offset: Long
    stack: Prose = ""
    offset: Long = -1


@command(57)
class OperationUnsupported(Command):
    """We do not do that."""

    request_id: Long
    operation_name: Prose
    stack: Prose = ""


@command(60)
class AuthTokenCheckFailed(Command):
    """`error_code`: -1 unspecified, 0 refused, 1 expired; the Rust client panics on any other."""

    request_id: Long
    stack: Prose
    error_code: Int


@command(61)
class ErrorMessage(Command):
    """`error_code`: -1 unspecified, 0 illegal argument."""

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
    """A version was expected of a key that is not there."""

    request_id: Long
    segment: Text
    stack: Prose


@command(82)
class TableKeyBadVersion(Command):
    """A key has another version than expected."""

    request_id: Long
    segment: Text
    stack: Prose
