"""Small files of secrets and of security, as an operator or a user names them."""

from __future__ import annotations

from sarit.core.errors import Invalid
from sarit.env.limits import MAX_SMALL_FILE_BYTES


def read_small_file(path: str, named_by: str) -> bytes:
    """A whole file.  Raises Invalid, which says what named it, an option or a variable: unreadable, or too long."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SMALL_FILE_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{named_by}: {path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_SMALL_FILE_BYTES:
        raise Invalid(f"{named_by}: {path} has more than {MAX_SMALL_FILE_BYTES} bytes")
    return data
