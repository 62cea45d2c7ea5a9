"""Reports how many requests a store makes to object storage, for `sarit cluster status`, which shows their cost.

Every REQUEST_REPORT_SECONDS a store writes its requests of the last minutes to a register of its own.  So the command
needs no connection to stores, and a store that does not answer has an old report or none.  Bytes:
docs/formats/object-requests.md.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import asdict, astuple, dataclass
from operator import add, sub
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sarit.cluster.limits import (
    DAY_SECONDS,
    REQUEST_REPORT_SECONDS,
    REQUEST_WINDOW_SECONDS,
    S3_GET_DOLLARS,
    S3_PUT_DOLLARS,
)
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Mapping
    from typing import Never

    from sarit.cluster.settings import ClusterMeta
    from sarit.coordination.port import Registers
    from sarit.env.ports import Clock
    from sarit.index.statistics import IndexStatistics
    from sarit.storage.metered_storage import StorageStatistics

REQUESTS: Final = "requests"
_FORMAT: Final = 1
_PAID_AS_PUT: Final = ("put", "write", "list")
_PAID_AS_GET: Final = ("get", "head", "read")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of requests for chunks and for the index: those priced as PUT, lists included, and those priced as GET."""

    chunk_puts: int = 0
    index_puts: int = 0
    chunk_gets: int = 0
    index_gets: int = 0

    def since(self, before: Counts) -> Counts:
        """Return the requests counted after `before`."""
        return Counts(*map(sub, astuple(self), astuple(before)))

    def plus(self, other: Counts) -> Counts:
        """Return the sum of two counts."""
        return Counts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class RequestReport:
    """The requests of the last `seconds` before `at_ms`, by the clock of the store."""

    at_ms: int
    seconds: float
    counts: Counts

    def encode(self) -> bytes:
        """Encode the report as JSON, the value of the register."""
        fields = {"version": _FORMAT, "at_ms": self.at_ms, "seconds": self.seconds}
        return json.dumps({**fields, **asdict(self.counts)}).encode()

    def dollars_a_day(self) -> float:
        """Return the dollars that a day of requests at this rate costs, at the prices of S3 Standard."""
        counts = self.counts
        puts, gets = counts.chunk_puts + counts.index_puts, counts.chunk_gets + counts.index_gets
        dollars = puts * S3_PUT_DOLLARS + gets * S3_GET_DOLLARS
        return dollars * DAY_SECONDS / self.seconds if self.seconds else 0.0


def decode_report(data: bytes) -> RequestReport:
    """Decode a report.  Raises Invalid: it has another version, or is no report."""
    try:
        fields = dict(json.loads(data))
        if fields.pop("version") != _FORMAT:
            raise Invalid("this report of requests is of another version of Sarit")
        at_ms, seconds = int(fields.pop("at_ms")), float(fields.pop("seconds"))
        return RequestReport(at_ms, seconds, Counts(**{name: int(value) for name, value in fields.items()}))
    except Invalid:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise Invalid(f"a report of requests cannot be read: {error}") from None


def on_object_store(meta: ClusterMeta) -> bool:
    """Return whether chunks or index of a cluster are on an object store."""
    return "s3" in (urlsplit(meta.storage).scheme, urlsplit(meta.index).scheme)


def counting(meta: ClusterMeta, storage: StorageStatistics, index: IndexStatistics) -> Callable[[], Counts]:
    """Return a function that counts the requests of a store to object storage; zero for a directory or HDFS."""
    chunks_on_s3 = urlsplit(meta.storage).scheme == "s3"

    def count() -> Counts:
        chunks = {kind: found.seconds.count for kind, found in storage.kinds.items()} if chunks_on_s3 else {}
        tables = index.requests()
        return Counts(
            _sum(chunks, _PAID_AS_PUT), _sum(tables, _PAID_AS_PUT), _sum(chunks, _PAID_AS_GET),
            _sum(tables, _PAID_AS_GET),
        )  # fmt: skip

    return count


def _sum(counted: Mapping[str, int], kinds: Iterable[str]) -> int:
    return sum(counted.get(kind, 0) for kind in kinds)


class RequestWindow:
    """A sliding window of REQUEST_WINDOW_SECONDS over the requests that `count` returns."""

    def __init__(self, count: Callable[[], Counts], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._samples = deque([(clock.monotonic(), Counts())])

    def __repr__(self) -> str:
        return f"<RequestWindow, {len(self._samples)} samples>"

    def report(self) -> RequestReport:
        """Take a sample.  Returns the requests since the oldest sample of the window."""
        now, counts = self._clock.monotonic(), self._count()
        self._samples.append((now, counts))
        while len(self._samples) > 2 and now - self._samples[0][0] > REQUEST_WINDOW_SECONDS:
            self._samples.popleft()
        began, before = self._samples[0]
        return RequestReport(self._clock.wall_ms(), round(now - began, 3), counts.since(before))


async def keep_reporting(registers: Registers, store: str, window: RequestWindow, log: logging.Logger) -> Never:
    """Write the report of a store at intervals, until cancelled."""
    while True:
        await asyncio.sleep(REQUEST_REPORT_SECONDS)
        try:
            await write_register(registers, f"{REQUESTS}/{store}", window.report().encode())
        except (Unavailable, Conflict, Exists, NotFound) as error:
            # Skip this report: the next one comes soon, and includes its requests.
            log.info("the requests of store %s are not reported now: %s", store, error)


async def write_register(registers: Registers, name: str, value: bytes) -> None:
    """Write a register that only this process writes.  Raises Unavailable, and what `Registers` raises."""
    found = await registers.get(name)
    if found is None:
        await registers.create(name, value)
    else:
        await registers.set(name, value, found.version)


async def read_report(registers: Registers, store: str, now_ms: int) -> RequestReport | None:
    """Return the report of a store; None: there is no recent one.  Raises Unavailable."""
    found = await registers.get(f"{REQUESTS}/{store}")
    if found is None:
        return None
    try:
        report = decode_report(found.value)
    except Invalid:  # a report of another version must not make the whole status fail
        return None
    return report if abs(now_ms - report.at_ms) <= 3000 * REQUEST_REPORT_SECONDS else None
