"""Values of tables as they are, one column of bytes, for tests and benchmarks of committers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.serializers.payload_columns import binary_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.lake.ports import ValueColumns

_BINARY: Final = "binary"


class BinaryChoice:
    """Values as they are: one column of bytes."""

    wants_sample = False

    def __repr__(self) -> str:
        return "<BinaryChoice>"

    async def choose(self, before: str, sample: Sequence[bytes]) -> str:
        """Return the text for values as they are."""
        return _BINARY

    async def open(self, chosen: str) -> ValueColumns:
        """Return the columns.  Raises Invalid."""
        if chosen != _BINARY:
            raise Invalid("values of this table are bytes, and its intent wants to decode them")
        return binary_columns()
