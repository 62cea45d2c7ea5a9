"""How much a query reads of streams, and the bound on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.sql.ports import Part


class TooMuch(Invalid):
    """A query would read more of streams than its caller has allowed: `planned_bytes`, of `limit_bytes`."""

    def __init__(self, planned_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"the query reads {planned_bytes:,} bytes of streams, and {limit_bytes:,} are allowed: bound it by "
            "sarit.ingested, sarit.segment or sarit.offset, or allow more"
        )
        self.planned_bytes = planned_bytes
        self.limit_bytes = limit_bytes


class ScanMeter:
    """A count of what the scans of one query plan and read, in bytes of streams; and their first failure.

    `ends_early`: the query has a LIMIT, so that it reads less than it plans; then what is read is bounded alone.
    `undecoded`: events that did not fit their schema, counted where their values were read.  `failure` is there because
    DuckDB passes on the text of a failure alone."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self.ends_early = False
        self.planned_bytes = 0
        self.read_bytes = 0
        self.undecoded = 0
        self.failure: BaseException | None = None

    def plan(self, parts: Sequence[Part]) -> None:
        """Count parts that are going to be read.  Raises TooMuch."""
        self.planned_bytes += sum(part.bytes for part in parts)
        if not self.ends_early:
            self._check(self.planned_bytes)

    def read(self, length: int) -> None:
        """Count bytes that were read.  Raises TooMuch."""
        self.read_bytes += length
        self._check(self.read_bytes)

    def fail(self, error: BaseException) -> None:
        """Note a failure, unless there was one before."""
        if self.failure is None:
            self.failure = error

    def _check(self, length: int) -> None:
        if self._limit_bytes is not None and length > self._limit_bytes:
            raise TooMuch(length, self._limit_bytes)
