"""The Spark row: a batch read of 4 segments by the Sarit connector, and of 4 partitions by Spark's Kafka connector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.bed import SaritNode, load
from benchmarks.peers.maven import class_path

if TYPE_CHECKING:
    from benchmarks.sarit_rows import Scale

SEGMENTS: Final = 4
EVENTS: Final = 8_000_000
QUICK_EVENTS: Final = 2_000_000
KEYS: Final = 1000
SPARK_SECONDS: Final = 300.0


def events(scale: Scale) -> int:
    """How many events are read."""
    return QUICK_EVENTS if scale.quick else EVENTS


def spark_on_sarit(directory: Path, scale: Scale) -> dict[str, Any]:
    """Count and sum of lengths by the `sarit` data source."""
    with SaritNode(directory).start() as node:
        load("sarit_admin", {"controller": node.endpoint, "streams": {"bench/spark": SEGMENTS}})
        options = {"controller": node.endpoint, "stream": "bench/spark", "seconds": 300, "events": events(scale)}
        written = load("sarit_write", options | {"many": True, "keys": KEYS})
        # The generator's 1,000 first events, without keys, count too.
        wanted = {"events": written["events"] + 1000, "format": "sarit", "endpoint": node.endpoint}
        return load("spark_count", wanted | {"stream": "bench/spark"}, SPARK_SECONDS)


def spark_on_kafka(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """The same by the Kafka connector on a topic of `count` events.  Raises PeerMissing without its jars."""
    jars = ",".join(str(jar) for jar in sorted(Path(class_path("spark-kafka")).parent.glob("*.jar")))
    options = {"events": count, "format": "kafka", "endpoint": bootstrap, "stream": topic, "jars": jars}
    return load("spark_count", options, SPARK_SECONDS)
