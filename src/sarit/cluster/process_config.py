"""The settings of one process of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.controller.times import Times
from sarit.core.errors import Invalid
from sarit.lake.catalogs import read_catalogs
from sarit.process.limits import MAX_API_CONNECTIONS
from sarit.process.security import SecurityConfig
from sarit.process.settings import DEFAULT_STORE_PORT, NodeConfig, RegistryConfig
from sarit.store.limits import MAX_CONNECTIONS, SCRUB_BYTES_PER_SECOND

if TYPE_CHECKING:
    from sarit.cluster.settings import ClusterAddress, ClusterMeta
    from sarit.env.traces import TraceSettings
    from sarit.process.addresses import Advertised
    from sarit.process.shown_option import ShownOption


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """The settings of one process of a cluster.  Port 0 picks a free port.

    `name`: the id of a store; None: `machine` and the port.  `machine`: the failure domain.  `weight`: the store's
    share of the containers in relation to other stores' weights.  `expected`: how many stores the first map waits for.
    `given`: options that must equal the cluster's description.  The rest is as in `NodeConfig`."""

    cluster: ClusterAddress
    machine: str
    port: int = DEFAULT_STORE_PORT
    host: str = "127.0.0.1"
    name: str | None = None
    advertised: Advertised | None = None
    weight: int = 1
    memory_bytes: int | None = None
    expected: int | None = None
    given: dict[str, object] = field(default_factory=dict)
    times: Times = field(default_factory=Times)
    max_connections: int = MAX_CONNECTIONS
    max_api_connections: int = MAX_API_CONNECTIONS
    scrub_bytes_per_second: int = SCRUB_BYTES_PER_SECOND
    http_port: int | None = None
    registry: RegistryConfig | None = None
    catalogs: str | None = None
    jobs: bool = False
    options: tuple[ShownOption, ...] = ()
    security: SecurityConfig = field(default_factory=SecurityConfig)
    traces: TraceSettings | None = None

    def check(self) -> ProcessConfig:
        """Check the configuration.  Returns it.  Raises Invalid: options contradict each other."""
        if self.http_port and self.http_port == self.port:
            raise Invalid(f"--http-port and --port are both {self.port}: choose another --http-port, or off")
        if self.registry is not None:
            self.registry.check(self.http_port)
            for option, port in (("--http-port", self.http_port), ("--port", self.port)):
                if self.registry.port and self.registry.port == port:
                    raise Invalid(
                        f"--registry-port and {option} are both {port}: choose another --registry-port, or off"
                    )
        read_catalogs(self.catalogs)
        self.times.check()
        self.security.check()
        return self

    def node(self, meta: ClusterMeta, machine_bytes: int, descriptors: int) -> NodeConfig:
        """Return the configuration of a node that could serve all containers.  Raises Invalid."""
        config = NodeConfig(
            meta.log_directory or "/",
            self.host,
            controller_port=0,
            store_port=self.port,
            containers=meta.containers,
            storage_url=meta.storage,
            advertised=self.advertised,
            memory_bytes=self.memory_bytes,
            max_connections=self.max_connections,
            max_api_connections=self.max_api_connections,
            scrub_bytes_per_second=self.scrub_bytes_per_second,
            times=self.times,
            security=self.security,
        )
        return config.validated().on_machine(machine_bytes).within(descriptors)
