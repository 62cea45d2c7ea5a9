"""The settings of a node that an operator chooses.  Fixed bounds and intervals: `limits.py` of each package.

One number bounds the memory of a node (`--memory`).  `divide_memory` gives each part its share of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sarit.controller.times import Times
from sarit.coordination.limits import MAX_CONTAINERS
from sarit.core.errors import Invalid
from sarit.core.limits import MIB
from sarit.index.limits import INDEX_CACHE_BYTES
from sarit.lake.catalogs import read_catalogs
from sarit.process.addresses import Advertised, advertised_port
from sarit.process.limits import MAX_API_CONNECTIONS, OBJECT_STORE_FLUSH_INTERVAL_SECONDS, PACKED_SEGMENTS
from sarit.process.places.bookkeeper_logs import parse_log_url
from sarit.process.security import SecurityConfig
from sarit.storage.directory import MAX_OPEN_FILES_PER_READER, READERS
from sarit.storage.layout import JOIN_EXTENTS
from sarit.storage.limits import CHUNK_TARGET_BYTES, SMALL_EXTENT_BYTES
from sarit.storage.open import check_lasting, directory_of_storage, parse_s3
from sarit.store.container.container import ContainerLimits
from sarit.store.limits import FLUSH_TRIGGER_BYTES, MAX_CONNECTIONS, SCRUB_BYTES_PER_SECOND
from sarit.store.store import StoreLimits
from sarit.store.tiering.checkpoint import FlushLimits

if TYPE_CHECKING:
    from sarit.env.traces import TraceSettings
    from sarit.process.shown_option import ShownOption

DEFAULT_CONTROLLER_PORT = 9090
DEFAULT_STORE_PORT = 12345
DEFAULT_REGISTRY_PORT = 8081
_MAX_PORT = 65535
# Open files other than client connections: listeners, locks, chunks; for each container its log and index.
_OWN_DESCRIPTORS = 64 + READERS * MAX_OPEN_FILES_PER_READER
_DESCRIPTORS_PER_CONTAINER = 24
_MIN_CONNECTIONS = 30

MAX_DEFAULT_MEMORY_BYTES = 2048 * MIB
# The interpreter, the libraries and the allocator's waste: what `--memory` does not cover.
PROGRAM_MEMORY_BYTES = 128 * MIB
_MIN_MEMORY_BYTES = 128 * MIB
_MIN_SMALL_MEMORY_BYTES = 64 * MIB
# Compaction gets a 32nd of it: as much as two extents that are small together.
_MIN_MEMORY_PER_CONTAINER_BYTES = 64 * MIB


_MAX_DEFAULT_PROCESSES = 8
_NO_BOUND = 1 << 62


def min_memory(containers: int, *, small: bool = False) -> int:
    """Return the least `--memory` of a node, in bytes.  `small`: of the profile for small machines."""
    return max(_MIN_SMALL_MEMORY_BYTES if small else _MIN_MEMORY_BYTES, containers * _MIN_MEMORY_PER_CONTAINER_BYTES)


def choose_memory(asked: int | None, machine_bytes: int, containers: int, *, small: bool = False) -> int:
    """Return the bytes that a node may take: what was asked for, or a quarter of the machine, at most 2 GiB.

    `machine_bytes`: what the machine or its control group gives to all processes.  Raises Invalid: it is less than the
    least a node needs, or more than there is."""
    least, most = min_memory(containers, small=small), machine_bytes - PROGRAM_MEMORY_BYTES
    chosen = max(least, min(machine_bytes // 4, MAX_DEFAULT_MEMORY_BYTES)) if asked is None else asked
    if chosen < least:
        raise Invalid(
            f"--memory {chosen // MIB}M is too little: a node of {containers} containers needs {least // MIB}M"
        )
    if chosen > most:
        raise Invalid(
            f"--memory {chosen // MIB}M is too much: this machine (or the control group of this process) has "
            f"{machine_bytes // MIB}M, and the program itself takes up to {PROGRAM_MEMORY_BYTES // MIB}M: choose at "
            f"most {max(most, 0) // MIB}M; a node of {containers} containers needs {least // MIB}M"
        )
    return chosen


def divide_memory(
    memory_bytes: int, containers: int, *, object_storage: bool, shared_index: bool = False
) -> StoreLimits:
    """Return the limits of a store of `containers` that takes `memory_bytes` at most.

    In parts of 32 (docs/operations.md has the table): 15 for dirty bytes, other changes included; 2 for flushed bytes
    that stay; 1 for blocks of chunks; 4 for metadata; 4 for what connections send and 4 for what they do not take; 2
    for compaction.  Object storage holds a copy of each chunk on its way: that comes out of the dirty bytes.

    `shared_index`: indexes are on an object store.  Each request to one costs money, so a checkpoint comes less often
    where it makes such requests."""
    part = memory_bytes // 32
    uploads = 4 * part // containers if object_storage else 0
    # A fifth of it is for control operations, which wait at a limit a quarter above that of appends.
    dirty = (15 * part - uploads * containers) * 4 // 5
    metadata = 4 * part // containers
    flush = FlushLimits(
        trigger_bytes=_between(dirty // (4 * containers), MIB, FLUSH_TRIGGER_BYTES),
        compaction_bytes=part // containers,
    )
    if object_storage or shared_index:
        flush = replace(flush, interval_seconds=OBJECT_STORE_FLUSH_INTERVAL_SECONDS)
    if object_storage:
        flush = replace(
            flush,
            packs=True,
            compaction_interval_seconds=JOIN_EXTENTS * OBJECT_STORE_FLUSH_INTERVAL_SECONDS,
            compaction_segments=PACKED_SEGMENTS,
        )
        if shared_index:
            # Inline nothing: compaction would read inlined extents back with a request for each block, but reads pieces
            # of packs together.
            flush = replace(flush, inline_below_bytes=0)
        # Three large ones take three quarters of the share, small ones the rest.
        chunk_bytes = _between(uploads // 4, SMALL_EXTENT_BYTES, CHUNK_TARGET_BYTES)
        flush = replace(
            flush,
            chunk_bytes=chunk_bytes,
            packed_below_bytes=chunk_bytes // 4,
            concurrent_small_writes=_between(uploads // 4 // SMALL_EXTENT_BYTES, 1, flush.concurrent_small_writes),
        )
    return StoreLimits(
        containers=containers,
        max_dirty_bytes=dirty,
        cache_bytes=2 * part,
        chunk_cache_bytes=part,
        connections_bytes=4 * part,
        index_cache_bytes=min(metadata // 8, INDEX_CACHE_BYTES),
        container=ContainerLimits(entry_cache_bytes=metadata // 4, metadata_bytes=metadata * 5 // 8),
        flush=flush,
    )


def node_ports(config: NodeConfig) -> list[tuple[str, int]]:
    """Return the ports that a node listens on, each with the option that chose it."""
    several = config.processes if config.processes > 1 else 0
    ports = [("--controller-port", config.controller_port)]
    if config.store_port and not config.one_port:
        ports += [("--store-port", config.store_port + number) for number in range(several or 1)]
    if config.http_port:
        ports += [("--http-port", config.http_port + number) for number in range(several + 1)]
    if config.registry is not None and config.registry.port:
        ports.append(("--registry-port", config.registry.port))
    return ports


def default_processes(cores: int, containers: int) -> int:
    """Return how many store processes `--processes auto` means: one for two cores, at most 8, at most one a
    container."""
    return max(1, min(cores // 2, _MAX_DEFAULT_PROCESSES, containers))


def _between(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """The schema registry of a process with a controller.  `port`: of its own; 0 picks a free one; None: it is on the
    HTTP port alone."""

    port: int | None = DEFAULT_REGISTRY_PORT

    def check(self, http_port: int | None) -> None:
        """Raises Invalid: there is no port to serve it on."""
        if self.port is None and http_port is None:
            raise Invalid("--registry on needs a port: give --registry-port or --http-port a number")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A standalone node.  Port 0 picks a free one.

    `storage_url`: where chunks go; None is the directory `chunks` under `data_dir`.
    `index_url`: where indexes are; None is the directory `index` under `data_dir`.
    `log_url`: where the durable log is; None is the directory `log` under `data_dir`.
    `one_port`: serve the wire protocol on the controller's port too.
    `advertised`: what clients get; None is `host` with the ports.
    `max_connections`, `max_api_connections`: how many may be open at once, to the store and to the controller.
    `memory_bytes`: for `on_machine`; None is a quarter of the machine's.
    `http_port`: of health, metrics, REST, console; None: none.  With `processes` it is the controller's, and the next
    ones are the stores'.
    `registry`: the schema registry; None: none.
    `catalogs`: the file with the Iceberg catalogs; None: there are none.  `jobs`: run background jobs.
    `processes`: how many store processes; with more than one the controller has a process of its own.
    `accept_data_loss`: go on without pieces of the directory that are missing or damaged.
    `allow_damaged`: serve the containers that are not damaged.
    `scrub_bytes_per_second`: how fast chunks are read to find damage; 0: not at all.
    `security`: TLS, users, tokens; without it everybody who reaches a port may do everything.
    `traces`: where they go; None: nowhere.
    `dev`: it is to try things, and says how clients reach it.  `small`: it is for a small machine.
    `options`: all of the above as the command line shows them.  `open_files`: that this process may have; None: not
    known yet."""

    data_dir: str
    host: str = "127.0.0.1"
    controller_port: int = DEFAULT_CONTROLLER_PORT
    store_port: int = DEFAULT_STORE_PORT
    containers: int = 4
    storage_url: str | None = None
    index_url: str | None = None
    log_url: str | None = None
    one_port: bool = False
    advertised: Advertised | None = None
    limits: StoreLimits = field(default_factory=StoreLimits)
    times: Times = field(default_factory=Times)
    max_connections: int = MAX_CONNECTIONS
    max_api_connections: int = MAX_API_CONNECTIONS
    memory_bytes: int | None = None
    accept_data_loss: bool = False
    allow_damaged: bool = False
    scrub_bytes_per_second: int = SCRUB_BYTES_PER_SECOND
    processes: int = 1
    http_port: int | None = None
    registry: RegistryConfig | None = None
    catalogs: str | None = None
    jobs: bool = False
    options: tuple[ShownOption, ...] = ()
    open_files: int | None = None
    security: SecurityConfig = field(default_factory=SecurityConfig)
    traces: TraceSettings | None = None
    dev: bool = False
    small: bool = False

    def advertised_store(self, port: int, number: int = 0) -> int:
        """Return the port of store `number` that clients get; `port`: where it listens."""
        if self.one_port:
            return advertised_port(self, port)
        first = self.advertised.store_port if self.advertised is not None else None
        return port if first is None else first + number

    def on_machine(self, machine_bytes: int) -> NodeConfig:
        """This configuration with limits that keep the node within its memory.  Raises Invalid (see `choose_memory`).

        `machine_bytes`: as for `choose_memory`."""
        memory = choose_memory(self.memory_bytes, machine_bytes, self.containers, small=self.small)
        return replace(self, memory_bytes=memory, limits=self._store_limits(memory, self.containers))

    def _store_limits(self, memory_bytes: int, own: int, processes: int = 1) -> StoreLimits:
        """Return the limits of one of `processes` equal stores, which serves `own` containers in `memory_bytes`.

        Each option that a store needs, but its listener does not, is carried to it here and nowhere else."""
        on_disk = self.storage_url is None or directory_of_storage(self.storage_url) is not None
        return replace(
            divide_memory(memory_bytes, own, object_storage=not on_disk, shared_index=self.index_url is not None),
            containers=self.containers,
            scrub_bytes_per_second=self.scrub_bytes_per_second // processes,
            log_file_bytes=self.limits.log_file_bytes,
        )

    def validated(self) -> NodeConfig:
        """This configuration with absolute paths.  Raises Invalid with the reason."""
        if not self.data_dir:
            raise Invalid("name a data directory")
        if not 1 <= self.containers <= MAX_CONTAINERS:
            raise Invalid(f"a node has 1 to {MAX_CONTAINERS} containers, not {self.containers}")
        for port in (self.controller_port, self.store_port):
            if not 0 <= port <= _MAX_PORT:
                raise Invalid(f"{port} is not a port (0 to {_MAX_PORT})")
        # Port 0 twice is fine: the system picks different ones.
        if self.controller_port and self.controller_port == self.store_port and not self.one_port:
            raise Invalid(
                f"controller and store need ports of their own (--controller-port and --store-port are "
                f"{self.store_port}), unless one port serves both (--one-port)"
            )
        if self.storage_url is not None:
            check_lasting(self.storage_url)
        if self.index_url is not None:
            parse_s3(self.index_url)
        if self.log_url is not None:
            parse_log_url(self.log_url)
            if self.accept_data_loss:
                raise Invalid("--accept-data-loss cannot be given with --log: put back what is missing in --data-dir")
        if not 1 <= self.processes <= self.containers:
            raise Invalid(
                f"--processes {self.processes}: each process needs a container, and there are {self.containers} "
                "(--containers, fixed when the data directory is created)"
            )
        if self.processes > 1 and self.one_port:
            raise Invalid("--one-port is for one process: with --processes each store has a port of its own")
        if self.processes > 1 and self.store_port:
            last = self.store_port + self.processes - 1
            if last > _MAX_PORT or self.store_port <= self.controller_port <= last:
                raise Invalid(
                    f"the stores need the ports {self.store_port} to {last} (--processes {self.processes}): choose "
                    "another --store-port or --controller-port"
                )
        self._check_advertised()
        self._check_http_port()
        self._check_registry()
        read_catalogs(self.catalogs)
        self.times.check()
        self.security.check()
        return replace(
            self, data_dir=os.path.abspath(self.data_dir), limits=replace(self.limits, containers=self.containers)
        )

    def check(self) -> None:
        """Raises Invalid for what no machine could run: more than `validated`."""
        validated = self.validated()
        if self.processes > 1:
            validated.divided(_NO_BOUND, _NO_BOUND)
        else:
            validated.on_machine(_NO_BOUND).within(_NO_BOUND)

    def _check_advertised(self) -> None:
        first = self.advertised.store_port if self.advertised is not None else None
        if first is None:
            return
        if self.one_port:
            raise Invalid(f"--advertise {self.advertised}: with --one-port clients need one port, HOST:PORT")
        if first + self.processes - 1 > _MAX_PORT:
            raise Invalid(
                f"--advertise {self.advertised}: the stores need the ports {first} to {first + self.processes - 1} "
                f"(--processes {self.processes}): choose a lower one"
            )

    def _check_http_port(self) -> None:
        if not self.http_port:
            return
        several = self.processes if self.processes > 1 else 0
        own = range(self.http_port, self.http_port + several + 1)
        last = self.store_port + max(several - 1, 0)
        if own[-1] > _MAX_PORT:
            raise Invalid(f"the HTTP ports {own[0]} to {own[-1]} are beyond {_MAX_PORT}: choose another --http-port")
        store = self.store_port and not self.one_port and self.store_port <= own[-1] and own[0] <= last
        if store or self.controller_port in own:
            ports = f"{own[0]}" if not several else f"{own[0]} to {own[-1]}"
            taken = "--store-port" if store else "--controller-port"
            raise Invalid(f"HTTP needs {ports}, which {taken} takes: choose another --http-port, or off")

    def _check_registry(self) -> None:
        if self.registry is None:
            return
        self.registry.check(self.http_port)
        port = self.registry.port
        taken = next((o for o, other in node_ports(self) if port and other == port and o != "--registry-port"), None)
        if taken is not None:
            raise Invalid(
                f"the schema registry needs {port}, which {taken} takes: choose another --registry-port, or off"
            )

    @property
    def chunks_url(self) -> str:
        """Where long-term storage is, as a URL."""
        return self.storage_url or f"file://{self.data_dir}/chunks"

    def within(self, descriptors: int) -> NodeConfig:
        """This configuration with no more connections than `descriptors` open files allow.

        Without this bound, connections could use up all descriptors, and the node could not open its own files.
        Raises Invalid when fewer than _MIN_CONNECTIONS are left."""
        own = _OWN_DESCRIPTORS + _DESCRIPTORS_PER_CONTAINER * self.containers
        left = descriptors - own
        if left < _MIN_CONNECTIONS:
            raise Invalid(
                f"this process may have {descriptors} open files; a node of {self.containers} containers needs "
                f"{own + _MIN_CONNECTIONS}: raise the limit (ulimit -n), or choose fewer containers"
            )
        portions = 2 if self.one_port else 1  # on one port, as many more connections may not have sent a byte yet
        api = min(self.max_api_connections, left // (2 + portions))
        connections = min(self.max_connections, left - portions * api)
        return replace(self, max_connections=connections, max_api_connections=api, open_files=descriptors)

    def divided(self, machine_bytes: int, descriptors: int) -> list[NodeConfig]:
        """Return the configuration of each store process, by number; memory and background reads are divided equally.

        `machine_bytes`: as for `choose_memory`.  `descriptors`: files that each process may open.  Raises Invalid."""
        count = self.processes
        largest = -(-self.containers // count)
        # The programs of the parent and of the other children come out of the machine's memory, not out of `--memory`.
        programs = (count + 1) * PROGRAM_MEMORY_BYTES
        least = count * min_memory(largest, small=self.small)
        asked = self.memory_bytes
        if asked is None:
            asked = max(least, min(machine_bytes // 4, MAX_DEFAULT_MEMORY_BYTES))
        if asked < least:
            raise Invalid(
                f"--memory {asked // MIB}M is too little: {count} processes of {largest} containers at most need "
                f"{least // MIB}M"
            )
        if asked > machine_bytes - programs:
            raise Invalid(
                f"--memory {asked // MIB}M is too much: this machine (or the control group of this process) has "
                f"{machine_bytes // MIB}M, and the programs of {count} stores and the controller take up to "
                f"{programs // MIB}M: choose at most {max(machine_bytes - programs, 0) // MIB}M, or fewer --processes"
            )
        parts = []
        for number in range(count):
            own = len(range(number, self.containers, count))
            limits = self._store_limits(asked // count, own, count)
            connections = replace(self, containers=own).within(descriptors).max_connections
            port = self.store_port + number if self.store_port else 0
            parts.append(replace(self, memory_bytes=asked, limits=limits, max_connections=connections, store_port=port))
        return parts
