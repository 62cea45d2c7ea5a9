"""Creation ids, which tell a recreated stream or table from an earlier one of the same name.

An id is random, and stored beside the record of its stream or table.  A stream or table that an earlier release created
has no stored id: its id is derived from the scope's random incarnation, the name and the first segment number, which
are unique together.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sarit.controller.limits import CREATION_ID_BYTES

if TYPE_CHECKING:
    from sarit.controller.model.records import CreationRecord


def creation_id(incarnation: bytes, name: str, first_number: int, stored: CreationRecord | None) -> bytes:
    """Return the creation id of the stream or table `name`, or of the scope itself if `name` is empty."""
    # Ignore a stored id with another first number: an earlier release deleted that table, but not the stored id.
    if stored is not None and stored.first_number == first_number:
        return stored.creation_id
    what = incarnation + name.encode() + b"\0" + first_number.to_bytes(8, "big", signed=True)
    return hashlib.blake2b(what, digest_size=CREATION_ID_BYTES).digest()
