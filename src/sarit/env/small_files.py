"""Small files of secrets and of security, as an operator or a user names them."""

from __future__ import annotations

import os
from typing import Final

from sarit.core.errors import Invalid
from sarit.env.limits import MAX_SMALL_FILE_BYTES

_OF_OTHERS: Final = 0o077
# Of root: secrets that Kubernetes and systemd give to a process of another user are readable by its group.
_OF_OTHERS_THAN_ROOT: Final = 0o037
_WRITTEN_BY_OTHERS: Final = 0o022


def read_small_file(path: str, named_by: str) -> bytes:
    """Return a whole file.  Raises Invalid when it cannot be read or is too long; the error names `named_by`, the
    option or variable that has its path."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SMALL_FILE_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{named_by}: {path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_SMALL_FILE_BYTES:
        raise Invalid(f"{named_by}: {path} has more than {MAX_SMALL_FILE_BYTES} bytes")
    return data


def read_unwritten(path: str, named_by: str, danger: str) -> bytes:
    """Return a file that decides who gets access.  Raises Invalid when it cannot be read, or when others may write it;
    the error then names the `danger`."""
    data = read_small_file(path, named_by)
    if os.stat(path).st_mode & _WRITTEN_BY_OTHERS:
        raise Invalid(f"{named_by}: {path} can be written by others, {danger}: chmod go-w {path}")
    return data


def read_secret(path: str, named_by: str, danger: str) -> bytes:
    """Return a file with secrets.  Raises Invalid when it cannot be read, or when others may read or write it; the
    error then names the `danger`."""
    data = read_unwritten(path, named_by, danger)
    found = os.stat(path)
    if found.st_mode & (_OF_OTHERS_THAN_ROOT if found.st_uid == 0 else _OF_OTHERS):
        raise Invalid(f"{named_by}: {path} can be read by others, {danger}: chmod 600 {path}")
    return data
