"""The settings of a node that an operator chooses.  Bounds and intervals that are fixed are in `core/limits.py`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from sarit.controller.times import Times
from sarit.core.errors import Invalid
from sarit.core.limits import MAX_API_CONNECTIONS, MAX_CONNECTIONS, MAX_CONTAINERS
from sarit.storage.directory import MAX_OPEN_FILES_PER_READER, READERS
from sarit.store.store import StoreLimits

DEFAULT_CONTROLLER_PORT = 9090
DEFAULT_STORE_PORT = 12345
_MAX_PORT = 65535
# Open files other than client connections: listeners, locks, chunks; for each container its log and index.
_OWN_DESCRIPTORS = 64 + READERS * MAX_OPEN_FILES_PER_READER
_DESCRIPTORS_PER_CONTAINER = 24
_MIN_CONNECTIONS = 30


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A standalone node.  Port 0 picks a free one.

    `storage_url`: where chunks go; None is the directory `chunks` under `data_dir`.
    `one_port`: serve the wire protocol on the controller's port too.
    `advertised_host`: the address that clients get; None is `host`.
    `max_connections`, `max_api_connections`: how many may be open at once, to the store and to the controller."""

    data_dir: str
    host: str = "127.0.0.1"
    controller_port: int = DEFAULT_CONTROLLER_PORT
    store_port: int = DEFAULT_STORE_PORT
    containers: int = 4
    storage_url: str | None = None
    one_port: bool = False
    advertised_host: str | None = None
    limits: StoreLimits = field(default_factory=StoreLimits)
    times: Times = field(default_factory=Times)
    max_connections: int = MAX_CONNECTIONS
    max_api_connections: int = MAX_API_CONNECTIONS

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
            raise Invalid("controller and store need ports of their own, unless one port serves both (--one-port)")
        if (self.storage_url or "").lower().startswith("memory:"):
            raise Invalid(
                "--storage memory:// is for tests: it loses everything when the node stops; use file:///absolute/path "
                "or s3://bucket/prefix"
            )
        self.times.check()
        return replace(
            self, data_dir=os.path.abspath(self.data_dir), limits=replace(self.limits, containers=self.containers)
        )

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
        portions = 2 if self.one_port else 1  # with one port, as many again may not have sent a byte yet
        api = min(self.max_api_connections, left // (2 + portions))
        return replace(self, max_connections=min(self.max_connections, left - portions * api), max_api_connections=api)
