"""The rows measured on peers: those of Sarit's rows in which a peer can be compared, one peer at a time.

Pravega is written with its own Java client, whose figure is compared, and with Sarit's client, which speaks its
protocol and is the fastest client for Pravega here: that figure compares the servers only.  Latencies and reads are
measured with Sarit's client.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any, Final

from benchmarks import spark_rows
from benchmarks.harness import Load, LoadFailed, load
from benchmarks.measure import measure_rows
from benchmarks.peers.java_load import java_load
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.maven import PeerMissing, class_path
from benchmarks.peers.pravega import Pravega
from benchmarks.sarit_rows import LOW_RATE, official_client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.scale import Scale

    Rows = dict[str, Callable[[Path, Scale], dict[str, Any]]]

PRODUCER: Final = (
    "acks=all", "linger.ms=5", "batch.size=1000000", "buffer.memory=268435456", "compression.type=none",
)  # fmt: skip
RECORDS_PER_S: Final = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")
QUICK_RECORDS: Final = 3_000_000
RECORDS_A_SECOND: Final = 500_000


class KafkaRows:
    """The rows on one broker; new topics for each."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def rows(self) -> Rows:
        """By name, as Sarit's."""
        return {
            "fast-1": lambda directory, scale: self._fast("fast1", 1, scale),
            "fast-16": lambda directory, scale: self._fast("fast16", 16, scale),
            "latency": self._latency,
            "catch-up": self._catch_up,
            "spark": self._spark(spark_rows.count),
            "spark-stream": self._spark(spark_rows.stream),
            "spark-tail": self._spark(spark_rows.tail),
            "spark-sink": self._spark(lambda side, scale: spark_rows.sink(side, scale, ("at-least-once",))),
        }

    def load(self, mode: str, **options: Any) -> dict[str, Any]:
        return load("kafka", {"bootstrap": self._kafka.bootstrap, "mode": mode, **options})

    def java_producer(self, topic: str, records: int) -> int:
        """Kafka's own ProducerPerformance: the fastest generator there is for Kafka.  Records/s."""
        command = self._kafka.java(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(records),
            "--record-size", "100", "--throughput", "-1", "--producer-props",
            f"bootstrap.servers={self._kafka.bootstrap}", *PRODUCER, heap="1g",
        )  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        found = [one for one in RECORDS_PER_S.findall(done.stdout) if int(one[0]) == records]
        if not found:
            raise LoadFailed(f"ProducerPerformance: {done.stdout[-500:]} {done.stderr[-1000:]}")
        return round(float(found[-1][1]))

    def _fast(self, topic: str, partitions: int, scale: Scale) -> dict[str, Any]:
        """The better one of Kafka's own generator and confluent-kafka counts."""
        self.load("topics", topics={topic: partitions})
        records = QUICK_RECORDS if scale.quick else int(scale.seconds(60) * RECORDS_A_SECOND)
        java = self.java_producer(topic, records)
        python = self.load("fast", topic=topic, seconds=scale.seconds(15))
        best = max(java, python["events_per_s"])
        return {"events_per_s": best, "producer_performance": java, "confluent_kafka": python}

    def _latency(self, directory: Path, scale: Scale) -> dict[str, Any]:
        seconds = scale.seconds(30)
        self.load("topics", topics={"ack": 1, "through": 1})
        ack = self.load("write", topic="ack", rate=LOW_RATE, seconds=seconds)
        options = {"mode": "follow", "topic": "through", "events": int(LOW_RATE * seconds), "skip": LOW_RATE}
        reader = Load("kafka", {"bootstrap": self._kafka.bootstrap, **options})
        try:
            reader.wait_ready()
            writer = self.load("write", topic="through", rate=LOW_RATE, seconds=seconds, stamp=True)
            return {"ack": ack, "end_to_end": reader.result(150), "ack_with_reader": writer}
        finally:
            reader.end()

    def _catch_up(self, directory: Path, scale: Scale) -> dict[str, Any]:
        self.load("topics", topics={"read": 1})
        self.java_producer("read", QUICK_RECORDS if scale.quick else 10_000_000)
        return {"events": self.load("read", topic="read")}

    def _spark(
        self, row: Callable[[spark_rows.SparkSide, Scale], dict[str, Any]]
    ) -> Callable[[Path, Scale], dict[str, Any]]:
        return lambda directory, scale: row(_KafkaSide(self, self._kafka.bootstrap), scale)


class _KafkaSide:
    """Topics of a broker, for the rows of Spark jobs."""

    def __init__(self, rows: KafkaRows, bootstrap: str) -> None:
        self._rows = rows
        self._bootstrap = bootstrap
        self._jars = class_path("spark-kafka")

    def make(self, stream: str, segments: int) -> None:
        """Create a topic."""
        self._rows.load("topics", topics={f"spark-{stream}": segments})

    def fill(self, stream: str, events: int) -> None:
        """Write that many events."""
        self._rows.java_producer(f"spark-{stream}", events)

    def writer(self, stream: str, rate: int, seconds: float) -> Load:
        """Begin to write `rate` events a second."""
        options = {"bootstrap": self._bootstrap, "mode": "write", "topic": f"spark-{stream}"}
        return Load("kafka", options | {"rate": rate, "seconds": seconds})

    def job(self, stream: str, guarantee: str = "") -> dict[str, Any]:
        """The options of a source, or of a sink."""
        topic = "topic" if guarantee else "subscribe"
        options = {"kafka.bootstrap.servers": self._bootstrap, topic: f"spark-{stream}"}
        return {"format": "kafka", "column": "value", "key": "key", "jars": self._jars, "options": options}

    def start_of(self, where: str) -> dict[str, str]:
        """Where a source begins."""
        return {"startingOffsets": where}

    def limit(self, events: int) -> dict[str, str]:
        """The bound of a micro-batch."""
        return {"maxOffsetsPerTrigger": str(events)}


class PravegaRows:
    """The rows on one Pravega node; new streams for each."""

    def __init__(self, pravega: Pravega) -> None:
        self._pravega = pravega
        self._endpoint = pravega.endpoint

    def rows(self) -> Rows:
        """By name, as Sarit's."""
        return {
            "official": lambda directory, scale: official_client(self._endpoint, scale),
            "fast-1": lambda directory, scale: self._fast("fast1", 1, scale),
            "fast-16": lambda directory, scale: self._fast("fast16", 16, scale),
            "latency": self._latency,
            "catch-up": self._catch_up,
        }

    def _make(self, **streams: int) -> None:
        names = {f"bench/{name}": segments for name, segments in streams.items()}
        load("sarit_admin", {"controller": self._endpoint, "streams": names}, 120)

    def _write(self, stream: str, **options: Any) -> dict[str, Any]:
        return load("sarit_write", {"controller": self._endpoint, "stream": f"bench/{stream}", **options}, 300)

    def _fast(self, stream: str, segments: int, scale: Scale) -> dict[str, Any]:
        self._make(**{stream: segments})
        by_sarit = self._write(stream, seconds=scale.seconds(30))
        by_java = self._java(stream, scale.seconds(60))
        return by_java | {"by_sarits_client": by_sarit}

    def _java(self, stream: str, seconds: float) -> dict[str, Any]:
        warm = min(seconds, 10.0)
        options = {
            "mode": "write",
            "endpoint": self._endpoint,
            "topic": stream,
            "rate": 0,
            "seconds": seconds,
            "warm": warm,
        }
        return java_load("PravegaLoad", self._pravega.classes, self._pravega.logging, options)

    def _latency(self, directory: Path, scale: Scale) -> dict[str, Any]:
        seconds = scale.seconds(30)
        self._make(ack=1, through=1)
        ack = self._write("ack", rate=LOW_RATE, seconds=seconds)
        options = {"mode": "follow", "events": int(LOW_RATE * seconds), "skip": LOW_RATE}
        reader = Load("sarit_read", {"controller": self._endpoint, "stream": "bench/through", **options})
        try:
            reader.wait_ready()
            writer = self._write("through", rate=LOW_RATE, seconds=seconds, stamp=True)
            return {"ack": ack, "end_to_end": reader.result(150), "ack_with_reader": writer}
        finally:
            reader.end()

    def _catch_up(self, directory: Path, scale: Scale) -> dict[str, Any]:
        self._make(read=1)
        self._write("read", seconds=120, events=QUICK_RECORDS if scale.quick else 10_000_000)
        options = {"controller": self._endpoint, "stream": "bench/read"}
        return {mode: load("sarit_read", options | {"mode": mode}, 300) for mode in ("arrow", "events")}


def measure_peers(directory: Path, scale: Scale, only: list[str]) -> dict[str, Any]:
    """Start, measure and stop each peer in turn.  A peer that cannot start records the reason."""
    found: dict[str, Any] = {}
    made: dict[str, tuple[Callable[[Path], Any], Callable[[Any], Any]]] = {
        "kafka": (Kafka, KafkaRows),
        "pravega": (lambda place: Pravega(place, durable=True), PravegaRows),
    }
    for name, (make, rows_of) in made.items():
        try:
            peer = make(directory / name)
        except PeerMissing as missing:
            found[name] = {"name": name, "rows": {}, "failed": {"all": str(missing)}}
            continue
        try:
            peer.start()
            found[name] = measure_rows(rows_of(peer).rows(), peer.name, directory / f"{name}-rows", scale, only)
        except PeerMissing as missing:
            found[name] = {"name": peer.name, "rows": {}, "failed": {"all": str(missing)}}
        finally:
            peer.stop()
    return found
