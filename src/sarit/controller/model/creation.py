"""Creation ids: what makes a stream or table differ from an earlier one of its name.

An id is random, and stored beside the record of what it belongs to.  Where none is stored (made by a release before, or
by one in the same cluster) it is derived from what no two of them share: the scope's random incarnation, the name, and
the first segment number.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sarit.controller.limits import CREATION_ID_BYTES

if TYPE_CHECKING:
    from sarit.controller.model.records import CreationRecord


def creation_id(incarnation: bytes, name: str, first_number: int, stored: CreationRecord | None) -> bytes:
    """Return the id of the stream or table `name` of a scope; the name is empty for the scope itself."""
    # Another first number: a release before removed that table, and knew nothing of the record beside it.
    if stored is not None and stored.first_number == first_number:
        return stored.creation_id
    what = incarnation + name.encode() + b"\0" + first_number.to_bytes(8, "big", signed=True)
    return hashlib.blake2b(what, digest_size=CREATION_ID_BYTES).digest()
