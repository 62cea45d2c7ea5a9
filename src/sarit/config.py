"""What an operator may choose about a node."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from sarit.controller.times import Times
from sarit.core.errors import Invalid
from sarit.core.limits import MAX_CONTAINERS
from sarit.store.store import StoreLimits

DEFAULT_CONTROLLER_PORT = 9090
DEFAULT_STORE_PORT = 12345
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A standalone node.  Port 0 picks a free one.

    `storage_url`: where chunks go; None is the directory `chunks` under `data_dir`.
    `one_port`: serve the wire protocol on the controller's port too.
    `advertised_host`: the address clients are told; None is `host`."""

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

    def validated(self) -> NodeConfig:
        """This configuration with absolute paths.  Raises Invalid with the reason."""
        if not self.data_dir:
            raise Invalid("name a data directory")
        if not 1 <= self.containers <= MAX_CONTAINERS:
            raise Invalid(f"a node has 1 to {MAX_CONTAINERS} containers, not {self.containers}")
        for port in (self.controller_port, self.store_port):
            if not 0 <= port <= _MAX_PORT:
                raise Invalid(f"{port} is not a port (0 to {_MAX_PORT})")
        if self.controller_port and self.controller_port == self.store_port and not self.one_port:
            raise Invalid("controller and store need ports of their own, unless one port serves both (--one-port)")
        self.times.check()
        return NodeConfig(
            os.path.abspath(self.data_dir), self.host, self.controller_port, self.store_port, self.containers,
            self.storage_url, self.one_port, self.advertised_host, replace(self.limits, containers=self.containers),
            self.times,
        )  # fmt: skip
