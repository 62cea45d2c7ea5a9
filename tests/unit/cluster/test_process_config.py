"""Options of one process of a cluster reach the node that it is."""

import dataclasses

import pytest

from sarit.cluster.process_config import ProcessConfig
from sarit.cluster.settings import ClusterMeta, parse_cluster
from sarit.controller.times import ScalingTimes, Times
from sarit.core.limits import MIB
from sarit.process.addresses import Advertised
from sarit.process.security import SecurityConfig
from sarit.process.settings import NodeConfig

META = ClusterMeta("1" * 32, "secret", 4, "file:///log", "file:///index", "file:///chunks", "machine")
VALUES = {
    "host": "127.0.0.9",
    "advertised": Advertised("store.example", 1, 2),
    "memory_bytes": 1024 * MIB,
    "max_connections": 1234,
    "max_api_connections": 234,
    "scrub_bytes_per_second": 5 * MIB,
    "times": Times(ScalingTimes(cool_down=77.0)),
    "security": SecurityConfig(token_seconds=77),
}
# The process reads these from its own configuration.
OF_THE_PROCESS = {"catalogs", "http_port", "jobs", "options", "registry", "traces"}
SHARED = {field.name for field in dataclasses.fields(ProcessConfig)} & {
    field.name for field in dataclasses.fields(NodeConfig)
}


@pytest.mark.parametrize("option", sorted(SHARED - OF_THE_PROCESS))
def test_an_option_of_the_process_is_one_of_its_node(option):
    config = ProcessConfig(parse_cluster("zookeeper://127.0.0.1:2181/first"), "machine")
    changed = dataclasses.replace(config, **{option: VALUES[option]})
    assert getattr(changed.node(META, 8192 * MIB, 1 << 20), option) == VALUES[option]
