"""What can be backed up: a node of this machine, or a cluster (`cluster.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Invalid
from sarit.ops.backup.indexes import SlateIndexes, SqliteIndexes
from sarit.ops.backup.limits import COPY_CACHE_BYTES
from sarit.ops.backup.node_connection import connect
from sarit.process.ownership.claims import read_description
from sarit.process.ownership.directory_content import CHUNKS_FOLDER, SQLITE, index_file
from sarit.process.places.indexes import open_shared_indexes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Env, Worker
    from sarit.ops.backup.indexes import Indexes
    from sarit.ops.backup.moment import StoreConnection

_WORK_FOLDER: Final = "backup-work"


class Source(Protocol):
    """An installation that runs.

    `node`: its id.  `places`: URLs of what belongs to it.  `work`: a folder for copies of indexes."""

    @property
    def node(self) -> str: ...
    @property
    def containers(self) -> int: ...
    @property
    def storage_url(self) -> str: ...
    @property
    def places(self) -> Sequence[str]: ...
    @property
    def work(self) -> str: ...

    async def connect(self) -> Sequence[StoreConnection]:
        """Begin a backup at all stores.  Raises Invalid, Unavailable, TryAgain."""

    def indexes(self, worker: Worker) -> Indexes:
        """Return where the indexes of the source are.  Raises Invalid."""


class NodeSource:
    """The data directory of a running node, as `meta` describes it."""

    def __init__(self, env: Env, directory: str, node: str, containers: int, storage_url: str, index: str) -> None:
        self._env = env
        self.directory = directory
        self.node = node
        self.containers = containers
        self.storage_url = storage_url
        self._index = index
        self.places = [f"file://{directory}", storage_url, *([] if index == SQLITE else [index])]
        self.work = f"{directory}/{_WORK_FOLDER}"

    def __repr__(self) -> str:
        return f"<NodeSource {self.directory}>"

    async def connect(self) -> Sequence[StoreConnection]:
        return await connect(self._env.files, self.directory)

    def indexes(self, worker: Worker) -> Indexes:
        if self._index == SQLITE:
            return SqliteIndexes(self._env.files, worker, lambda number: f"{self.directory}/{index_file(number)}")
        return SlateIndexes(self._env, worker, open_shared_indexes(self._index, COPY_CACHE_BYTES))


def describe_node(env: Env, directory: str) -> NodeSource:
    """Return the node of a data directory.  Raises Invalid: it is none."""
    if not env.files.exists(f"{directory}/meta"):
        raise Invalid(f"{directory} is not a data directory of Sarit: it has no file `meta`")
    meta = read_description(env.files, directory)
    storage = str(meta["storage"])
    url = f"file://{directory}/{CHUNKS_FOLDER}" if storage == CHUNKS_FOLDER else storage
    return NodeSource(env, directory, str(meta["node"]), int(meta["containers"]), url, str(meta.get("index", SQLITE)))
