"""The calls of SearchService, in families that are made when the first call of each comes.

A process that nobody asks pays for none of it: neither `sarit.search` nor Tantivy is imported before.

A call is a line of `FAMILIES`: its name, and the module of its family, which defines

    family(world) -> object     serves calls, each by a method of its name, until its method `close` is awaited
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sarit.admin.exposition import Sample
    from sarit.controller.assembly import Controller
    from sarit.controller.assignment import Address
    from sarit.controller.ports import Segments, Tables
    from sarit.env.ports import Env
    from sarit.process.security import Security
    from sarit.search.ports import Blobs, ShardEngine

# The module of the family that serves each call.  A call without one is answered as a call that is not known.
FAMILIES: Final[dict[str, str]] = {
    "search": "sarit.process.search.family",
    "searchShards": "sarit.process.search.family",
    "searchInfo": "sarit.process.search.family",
    "putContinuous": "sarit.process.search.continuous",
    "listContinuous": "sarit.process.search.continuous",
    "deleteContinuous": "sarit.process.search.continuous",
}


class Site(Protocol):
    """The indexes of an installation, as `SearchSite` of `process/search/site.py`."""

    @property
    def blobs(self) -> Blobs:
        """Return the files of shards."""

    def engine(self) -> ShardEngine:
        """Return what opens shards.  Blocks.  Raises MissingExtra."""

    def directory(self, name: str) -> Path:
        """Return a local directory for a part of this process.  Blocks.  Raises OSError."""


@dataclass(frozen=True, slots=True)
class SearchWorld:
    """The parts of a controller that searches and continuous queries work with.

    `members`: returns the known addresses of all controllers, this one's included.  `site`: the indexes; None:
    there are none."""

    controller: Controller
    tables: Tables
    segments: Segments
    env: Env
    security: Security
    members: Callable[[], Sequence[Address]]
    site: Site | None = None


class SearchFamilies:
    """The families that serve the calls of SearchService, each made by its first call.

    `families`: the module of each call; tests give others."""

    def __init__(self, world: SearchWorld, families: Mapping[str, str] = FAMILIES) -> None:
        self._world = world
        self._modules = families
        self._made: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<SearchFamilies, {', '.join(sorted(self._made)) or 'none called'}>"

    async def family(self, call: str) -> Any:
        """Return what serves a call.  Raises NotImplementedError: nothing does."""
        if (module := self._modules.get(call)) is None:
            raise NotImplementedError("Method not found")
        if module not in self._made:
            # Imported on a thread: a large library takes a second, in which clients are served.
            worker = self._world.env.threads.worker("search-import")
            try:
                imported = await worker.run(lambda: import_module(module))
            finally:
                await worker.close()
            if module not in self._made:  # another call may have made it meanwhile
                self._made[module] = imported.family(self._world)
        return self._made[module]

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of searches; none before the first one."""
        for family in self._made.values():
            if hasattr(family, "samples"):
                yield from family.samples()

    async def close(self) -> None:
        """Close the families that were made."""
        made, self._made = self._made, {}
        for family in made.values():
            await family.close()
