"""A node in one process: picks the implementations, starts them in order, stops them in reverse."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.controller.server import Controller
from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.core.limits import GC_THRESHOLDS, SWITCH_INTERVAL_SECONDS
from sarit.inprocess import InProcessSegments, InProcessTables
from sarit.storage.owner import claim_storage
from sarit.store.meters import Meters
from sarit.store.server import StoreServer
from sarit.store.store import SegmentStore

if TYPE_CHECKING:
    from sarit.config import NodeConfig
    from sarit.env.ports import Env, File
    from sarit.index.port import IndexProvider
    from sarit.log.port import LogProvider
    from sarit.storage.port import ChunkStorage

_log = logging.getLogger("sarit.node")

META_VERSION = 1
# In the data directory once long-term storage holds the node's mark.
STORAGE_MARKED: Final = "storage-marked"
_BACKLOG = 4096


class Node:
    """A store, a controller and their servers."""

    def __init__(
        self, config: NodeConfig, env: Env, logs: LogProvider, indexes: IndexProvider, storage: ChunkStorage
    ) -> None:
        self.config = config
        self.env = env
        self.storage = storage
        self.store = SegmentStore(env, logs, indexes, storage, config.limits, config.data_dir)
        self.server = StoreServer(self.store, max_connections=config.max_connections)
        self.meters = Meters(self.store, env.clock, config.times.scaling)
        address = advertised_address(config)
        self.segments = InProcessSegments(self.store, address, self.meters)
        self.controller = Controller(
            InProcessTables(self.store), self.segments, env, (address, config.controller_port), config.times
        )
        self.meters.ask = self.controller.autoscale.asked
        self.controller_port = config.controller_port
        self.store_port = config.store_port
        self._api: asyncio.Server | None = None
        self._metering: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return (
            f"<Node controller {self.config.host}:{self.controller_port}, store {self.config.host}:{self.store_port}>"
        )

    async def start(self) -> None:
        """Recover and serve.  Raises Corrupt, Unavailable, OSError (a port is taken)."""
        from sarit.one_port import OnePort
        from sarit.rpc.door import Door

        await self.store.start()
        await self.controller.start()
        self._metering = asyncio.ensure_future(self.meters.run())
        if not self.config.one_port:
            self.store_port = await self.server.listen(self.config.host, self.config.store_port)
        self.server.watch()
        door = Door(self.controller.services(), self.config.max_api_connections)
        entrance = door.connection
        if self.config.one_port:
            entrance = OnePort(self.server.connection, door.connection, self.config.max_api_connections).connection
        self._api = await asyncio.get_running_loop().create_server(
            entrance, bound_address(self.config.host), self.config.controller_port, backlog=_BACKLOG
        )
        if not self.config.controller_port:
            self.controller_port = self._api.sockets[0].getsockname()[1]
        if self.config.one_port:
            self.store_port = self.controller_port
        self.segments.port = self.store_port
        self.controller.advertised = (self.controller.advertised[0], self.controller_port)

    async def stop(self) -> None:
        """Stop serving, flush what is not in long-term storage, close everything."""
        if self._api is not None:
            self._api.close()
        if self._metering is not None:
            self._metering.cancel()
            await asyncio.gather(self._metering, return_exceptions=True)
        await self.controller.stop()
        await self.server.close()
        await self.store.stop()


def advertised_address(config: NodeConfig) -> str:
    """The address clients are told: an address, not a name."""
    host = config.advertised_host or config.host
    if host in ("", "0.0.0.0", "::"):
        host = "127.0.0.1"
    return bound_address(host)


def bound_address(host: str) -> str:
    """The one address of a host that the API listens at: the store's, which takes IPv4 where there is both."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Invalid(f"the host name {host!r} cannot be resolved: {error}") from None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


@dataclass(frozen=True, slots=True)
class Claimed:
    """A data directory that is this process's: its lock, the node's id, and whether it writes to long-term storage only
    since that holds the node's mark (directories of earlier versions do not say so)."""

    lock: File
    node: str
    marks: bool


def claim_directory(config: NodeConfig, env: Env) -> Claimed:
    """Lock the data directory and check, or write, what it says of itself.

    Blocks.  Raises Unavailable (another node runs on it), Invalid (it is of other settings)."""
    files, directory = env.files, config.data_dir
    files.make_dirs(directory)
    lock_path = f"{directory}/lock"
    lock = files.open(lock_path, "write" if files.exists(lock_path) else "create")
    if not lock.lock():
        lock.close()
        raise Unavailable(f"another node runs on {directory}: stop it first, or choose another --data-dir")
    meta_path = f"{directory}/meta"
    storage = config.storage_url or "chunks"
    if not files.exists(meta_path):
        node = env.random.bytes(16).hex()
        meta = {
            "version": META_VERSION,
            "node": node,
            "containers": config.containers,
            "storage": storage,
            "index": "sqlite",
            "marks": True,
        }
        temporary = meta_path + ".new"
        if files.exists(temporary):
            files.remove(temporary)
        file = files.open(temporary, "create")
        file.pwrite([json.dumps(meta, indent=2).encode()], 0)
        file.datasync()
        file.close()
        files.rename(temporary, meta_path)
        files.sync_dir(directory)
        return Claimed(lock, node, marks=True)
    file = files.open(meta_path, "read")
    try:
        meta = json.loads(file.pread(file.size(), 0))
    finally:
        file.close()
    if meta.get("version") != META_VERSION:
        raise Invalid(f"{directory} is of format {meta.get('version')}; this version of Sarit reads {META_VERSION}")
    for name, value, option in (("containers", config.containers, "--containers"), ("storage", storage, "--storage")):
        if meta.get(name) != value:
            raise Invalid(f"{directory} was made with {option} {meta.get(name)}, not {value}: start it with that again")
    return Claimed(lock, str(meta["node"]), marks=bool(meta.get("marks")))


async def claim_chunks(node: Node, claimed: Claimed) -> None:
    """See that long-term storage is this node's alone.  Raises Invalid, Unavailable."""
    config, files = node.config, node.env.files
    if (config.storage_url or "").startswith("memory:"):
        return
    path = f"{config.data_dir}/{STORAGE_MARKED}"
    marked = files.exists(path)
    try:
        new = claimed.marks and not marked
        await claim_storage(node.storage, claimed.node, config.containers, marked=marked, new=new)
    except Unavailable as error:
        if not marked:
            raise
        _log.warning("long-term storage is away; it was this node's when it was there last: %s", error)
    if not marked:
        files.open(path, "create").close()
        files.sync_dir(config.data_dir)


async def open_node(config: NodeConfig, env: Env) -> Node:
    """A node on real disks, not started yet.  The directory is claimed."""
    from sarit.index.sqlite import SqliteIndexProvider
    from sarit.log.local import LocalLogProvider
    from sarit.storage.open import open_storage

    directory = config.data_dir
    env.files.make_dirs(f"{directory}/index")
    url = config.storage_url or f"file://{directory}/chunks"
    return Node(
        config,
        env,
        LocalLogProvider(env, f"{directory}/log"),
        SqliteIndexProvider(env, f"{directory}/index"),
        await open_storage(url, env),
    )


async def _serve(config: NodeConfig, env: Env) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    claimed = claim_directory(config, env)
    node = await open_node(config, env)
    try:
        await claim_chunks(node, claimed)
        await node.start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        print(
            f"sarit is ready: controller {config.host}:{node.controller_port}, store {config.host}:{node.store_port}, "
            f"data in {config.data_dir}",
            flush=True,
        )
        await stop.wait()
        _log.info("stopping: flushing to long-term storage")
    finally:
        await node.stop()
        claimed.lock.close()
    print("sarit stopped; everything acknowledged is on disk", flush=True)


def run(config: NodeConfig) -> None:
    """Run a node until SIGTERM or SIGINT.  Raises SaritError, OSError when it cannot start."""
    import uvloop

    from sarit.env.real import real_env
    from sarit.env.real_limits import raise_descriptor_limit

    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    allowed = raise_descriptor_limit()
    wanted, config = config, config.validated().within(allowed)
    if config.max_connections < wanted.max_connections:
        _log.warning(
            "only %d files may be open: %d connections to the store and %d to the controller at most (see ulimit -n)",
            allowed, config.max_connections, config.max_api_connections,
        )  # fmt: skip
    uvloop.run(_serve(config, real_env()))


__all__ = ["Node", "SaritError", "claim_directory", "open_node", "run"]
