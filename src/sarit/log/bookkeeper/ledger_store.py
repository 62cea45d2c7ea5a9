"""The metadata of ledgers in ZooKeeper (a `LedgerStore`).

The layout is `longhierarchical`, and ids are drawn as the Java client draws them: from the numbers that ZooKeeper gives
to sequential nodes.  These have 31 bits.  Once they are used up, all clients for ever make the nodes below
`idgen-long/HOB-n`, and n is the upper half of the id.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Exists, Invalid, NotFound, SaritError, Unavailable
from sarit.log.bookkeeper.metadata import LEDGERS_ROOT, LedgerMetadata, decode, encode, path_of

if TYPE_CHECKING:
    from sarit.coordination.port import Versioned

_LAYOUT: Final = "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory"
# The content of the layout node: the format of the node, and that of the layout `longhierarchical`.
_LAYOUT_NODE: Final = f"2\n{_LAYOUT}:1"
_FIRST_UPPER_HALF: Final = 1
# The largest number that ZooKeeper gives; the next ones are negative.
_END_OF_NUMBERS: Final = (1 << 31) - 1
_UPPER_PREFIX: Final = "HOB-"


class LedgerNodes(Protocol):
    """The calls that this module needs of `coordination.zookeeper.ZooKeeper`.  Paths are absolute."""

    async def get(self, path: str) -> Versioned | None:
        """Return the value of a node; None when there is none."""

    async def create(
        self, path: str, value: bytes, ephemeral: bool = False, sequence: bool = False, parents: bool = False,
        shared: bool = False,
    ) -> str:  # fmt: skip
        """Create a node.  Returns its path.  `shared`: whether bookies and their other clients may use the node.

        Raises Exists, Unavailable."""

    async def set(self, path: str, value: bytes, expected: int | None) -> int:
        """Replace the value of a node.  Returns its new version.  Raises Conflict, NotFound, Unavailable."""

    async def delete(self, path: str, expected: int | None = None) -> None:
        """Delete a node.  Raises Conflict, NotFound, Unavailable."""

    async def children(self, path: str) -> list[str]:
        """Return the names directly below a node."""


class ZooKeeperLedgers:
    """The metadata of ledgers below `root`.  All calls may raise Unavailable, a change with an unknown outcome."""

    def __init__(self, nodes: LedgerNodes, root: str = LEDGERS_ROOT) -> None:
        self._nodes = nodes
        self._root = root

    def __repr__(self) -> str:
        return f"ZooKeeperLedgers({self._root})"

    async def check_layout(self) -> None:
        """Check that BookKeeper is set up with the layout that Sarit reads.  Raises Invalid (with the reason)."""
        found = await self._nodes.get(f"{self._root}/LAYOUT")
        if found is None:
            raise Invalid(
                f"ZooKeeper has no {self._root}/LAYOUT: no BookKeeper is set up there; is the path right? "
                "(`bookkeeper shell initnewcluster` sets one up)"
            )
        layout = found.value.decode(errors="replace").strip()
        if layout != _LAYOUT_NODE:
            raise Invalid(
                f"the ledgers below {self._root} have the layout {layout!r}, and Sarit reads {_LAYOUT_NODE!r} alone: "
                "set BookKeeper up with metadataServiceUri=zk+longhierarchical://..."
            )

    async def create(self, metadata: LedgerMetadata, ledger: int | None = None) -> tuple[int, int]:
        """Store the metadata of a new ledger.  Returns its id, and the version of the metadata.

        `ledger`: an id from `new_id`; None for another one.  After Unavailable the ledger may have been created; the
        call may be repeated with the same id and `ctoken`.  Raises Invalid, Exists, Unavailable."""
        value = encode(metadata)
        if ledger is None:
            ledger = await self.new_id()
        try:
            await self._nodes.create(path_of(ledger, self._root), value, parents=True, shared=True)
        except (Exists, Unavailable):
            # Check whether an earlier attempt, whose answer was lost, has created the ledger.
            if not await self._is_ours(ledger, metadata.ctoken):
                raise
        return ledger, 0

    async def get(self, ledger: int) -> tuple[LedgerMetadata, int]:
        """Return the metadata, and its version.  Raises NotFound, Corrupt, Invalid, Unavailable."""
        path = path_of(ledger, self._root)
        found = await self._nodes.get(path)
        if found is None:
            raise NotFound(f"ledger {ledger} has no metadata at {path}")
        return decode(found.value, f"the metadata of ledger {ledger}"), found.version

    async def set(self, ledger: int, metadata: LedgerMetadata, expected: int) -> int:
        """Replace the metadata of the version `expected`.  Returns the new version.

        Raises Conflict, NotFound, Invalid, Unavailable."""
        return await self._nodes.set(path_of(ledger, self._root), encode(metadata), expected)

    async def delete(self, ledger: int, expected: int | None = None) -> None:
        """Delete a ledger's metadata; bookies delete its entries later.  Raises Conflict, NotFound, Unavailable."""
        await self._nodes.delete(path_of(ledger, self._root), expected)

    async def _is_ours(self, ledger: int, token: int) -> bool:
        try:
            found, version = await self.get(ledger)
        except NotFound:
            return False  # no attempt has created the ledger
        return version == 0 and token != 0 and found.ctoken == token

    # -- ids --------------------------------------------------------------------------------------

    async def new_id(self) -> int:
        """Return an id that no other client gets.  Raises Unavailable."""
        upper_path = f"{self._root}/idgen-long"
        if await self._nodes.get(upper_path) is None:
            number = await self._number_below(f"{self._root}/idgen")
            if number is not None:
                return number
            with suppress(Exists):
                await self._nodes.create(upper_path, b"", parents=True, shared=True)
        return await self._new_long_id(upper_path)

    async def _new_long_id(self, path: str) -> int:
        suffixes = [name.removeprefix(_UPPER_PREFIX) for name in await self._nodes.children(path)]
        upper = max((int(suffix) for suffix in suffixes if suffix.isdigit()), default=0)
        if upper:
            number = await self._number_below(f"{path}/{_UPPER_PREFIX}{upper:010d}")
            if number is not None:
                return upper << 32 | number
        upper = upper + 1 if upper else _FIRST_UPPER_HALF
        with suppress(Exists):  # another client was faster
            await self._nodes.create(f"{path}/{_UPPER_PREFIX}{upper:010d}", b"", parents=True, shared=True)
        number = await self._number_below(f"{path}/{_UPPER_PREFIX}{upper:010d}")
        if number is None:
            raise Unavailable(f"the ledger ids below {path}/{_UPPER_PREFIX}{upper:010d} are used up: try again")
        return upper << 32 | number

    async def _number_below(self, path: str) -> int | None:
        """Return the next number that ZooKeeper gives below `path`; None when the numbers are used up."""
        prefix = f"{path}/ID-"
        made = await self._nodes.create(prefix, b"", ephemeral=True, sequence=True, parents=True, shared=True)
        number = int(made.removeprefix(prefix))
        # Delete the node, whose number is used anyway; it disappears with the session at the latest.
        with suppress(SaritError):
            await self._nodes.delete(made)
        return number if 0 <= number < _END_OF_NUMBERS else None
