"""An output of continuous queries that is sealed while they run, or sealed and deleted, and made again later.

Its queries are suspended, with the reason, and hold again from a stated cut once it is there.  Matches of events that
are asked about meanwhile may be lost with it.  Queries of other outputs go on as if nothing were.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.core.errors import NotFound
from simulation.actors.clients import packed, retry_forever
from simulation.actors.job_streams import JobStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from checkers.search import Cut
    from sarit.client.aio import Client
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from simulation.cluster import Cluster

_SHARE: Final = 0.5
_DELETED: Final = 0.5
_LATE: Final = 0.5
_BEFORE_SECONDS: Final = 12.0
_BROKEN_SECONDS: Final = 20.0
_REASONS: Final = ("sealed", "not exist")


class BrokenOutput:
    """The output that is broken in this run, if one is, and what it had."""

    def __init__(
        self, cluster: Cluster, source: StreamName, outputs: Sequence[StreamName], cut: Callable[[], StreamCut | None]
    ) -> None:  # fmt: skip
        """`cut`: returns the cut that the job has saved."""
        self._cluster = cluster
        self._source = source
        self._cut = cut
        self._rng = cluster.rng("breaker of an output")
        self.output = self._rng.choice(outputs) if self._rng.random() < _SHARE else None
        self.matches: list[bytes] = []  # of the stream that was deleted
        self.is_broken = False
        self._exists = True
        self._begin: Cut = {}
        self._end: Cut | None = None

    def __repr__(self) -> str:
        return f"<BrokenOutput {self.output}, {len(self.matches)} matches>"

    def gap(self, output: StreamName) -> tuple[Cut, Cut] | None:
        """Return the cuts between which matches may be lost."""
        return None if output != self.output or self._end is None else (self._begin, self._end)

    def explains(self, output: StreamName, problem: str) -> bool:
        """Return whether queries of an output may be suspended for a reason."""
        return output == self.output and any(reason in problem for reason in _REASONS)

    async def run(self, client: Client) -> None:
        """Break the output, and make it again, or leave that to the end of the run."""
        rng, output = self._rng, self.output
        assert output is not None
        await asyncio.sleep(_BEFORE_SECONDS * rng.random())
        cut = self._cut()
        self._begin = {} if cut is None else packed(cut)  # matches before it are committed
        self.is_broken = True
        await retry_forever(lambda: client.seal_stream(output))
        self._cluster.trace.probe("continuous_output_sealed")
        if rng.random() < _DELETED:
            await self._delete(client, output)
        if rng.random() >= _LATE:
            await asyncio.sleep(_BROKEN_SECONDS * rng.random())
            await self.mend(client)

    async def _delete(self, client: Client, output: StreamName) -> None:
        had = await retry_forever(lambda: JobStream(self._cluster, output, "", "").events(client))
        self.matches = [data for _, data in sorted(had.items())]
        with suppress(NotFound):  # an answer was lost
            await retry_forever(lambda: client.delete_stream(output))
        self._cluster.trace.probe("continuous_output_deleted")
        self._exists = False

    async def mend(self, client: Client) -> None:
        """Make the output again, if it is broken."""
        output = self.output
        if output is None or not self.is_broken:
            return
        if self._exists:
            await self._delete(client, output)
        await retry_forever(lambda: client.create_stream(output, segments=2))
        self._end = packed(await retry_forever(lambda: client.stream_cut_tail(self._source)))
        self.is_broken = False


__all__ = ["BrokenOutput"]
