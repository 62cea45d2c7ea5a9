"""Kafka under the same loads, with confluent-kafka: `python -m benchmarks.loads.kafka '{"bootstrap": ..., ...}'`.

`mode`: "topics" makes `topics` ({name: partitions}); "write" open loop at `rate` for `seconds`, with `stamp` for the
due time in each event; "fast" writes for `seconds` as fast as it goes; "read" reads a topic to its end; "follow"
reads `events` stamped events from the tail on.  The producer is idempotent with acks=all, as Sarit's writer always is.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.loads.open_loop import EVENT_BYTES, Latencies, event_at, now, percentiles

WARM_UP_SECONDS = 1.0
PAUSE_SECONDS = 0.0002
FETCH_MESSAGES = 20_000


def _topics(options: dict[str, Any]) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": options["bootstrap"]})
    wanted = [NewTopic(name, partitions, 1) for name, partitions in options["topics"].items()]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    return {}


def _producer(options: dict[str, Any], linger_ms: float, **more: Any) -> Any:
    return Producer({
        "bootstrap.servers": options["bootstrap"], "acks": "all", "enable.idempotence": True, "linger.ms": linger_ms,
        "batch.size": 1_000_000, "batch.num.messages": 10_000, "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 512_000, **more,
    })  # fmt: skip


def _write(options: dict[str, Any]) -> dict[str, Any]:
    """Open loop; a thread of its own collects the reports, one per event."""
    rate, seconds, topic = float(options["rate"]), float(options["seconds"]), options["topic"]
    total, event, stamp = int(rate * seconds), b"x" * EVENT_BYTES, options.get("stamp", False)
    producer = _producer(options, 0)
    producer.produce(topic, event_at(0.0))
    producer.flush()
    latencies = Latencies(now() + 0.05, rate)
    start, sent, acked, late = latencies.start, 0, 0, 0.0

    def delivered(number: int) -> Any:
        def report(error: Any, _: Any) -> None:
            nonlocal acked
            if error is not None:
                raise RuntimeError(str(error))
            latencies.acked(number, number + 1, now())
            acked += 1

        return report

    def poll() -> None:
        while acked < total:
            producer.poll(0.01)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    while sent < total:
        due = min(int((now() - start) * rate), total)
        if due <= sent:
            time.sleep(PAUSE_SECONDS)
            continue
        late = max(late, now() - start - sent / rate)
        for number in range(sent, due):
            data = event_at(start + number / rate) if stamp else event
            producer.produce(topic, data, on_delivery=delivered(number))
        sent = due
    poller.join(60)
    result = {"events": acked, "events_per_s": round(acked / (now() - start)), "generator_late_max_ms": late * 1000}
    return result | percentiles(latencies.seconds(WARM_UP_SECONDS))


def _fast(options: dict[str, Any]) -> dict[str, Any]:
    failures: list[str] = []
    only_errors = {"delivery.report.only.error": True, "on_delivery": lambda error, _: failures.append(str(error))}
    producer, topic, event = _producer(options, 5, **only_errors), options["topic"], b"x" * EVENT_BYTES
    start, sent = now(), 0
    end = start + float(options["seconds"])
    while now() < end:
        for _ in range(500):
            while True:
                try:
                    producer.produce(topic, event)
                    break
                except BufferError:
                    producer.poll(0.01)
        sent += 500
        producer.poll(0)
    producer.flush()
    if failures:
        raise RuntimeError(f"{len(failures)} events were not stored: {failures[0]}")
    elapsed = now() - start
    return {"events": sent, "seconds": round(elapsed, 2), "events_per_s": round(sent / elapsed)}


def _consumer(options: dict[str, Any], wait_ms: int) -> Any:
    return Consumer({
        "bootstrap.servers": options["bootstrap"], "group.id": "bench", "enable.auto.commit": False,
        "enable.partition.eof": True, "fetch.wait.max.ms": wait_ms, "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 512_000, "check.crcs": False,
    })  # fmt: skip


def _assign(consumer: Any, topic: str, *, tail: bool) -> int:
    """Take every partition, from the head or the tail; returns how many there are."""
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    places = []
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
        places.append(TopicPartition(topic, number, high if tail else low))
    consumer.assign(places)
    return len(partitions)


def _read(options: dict[str, Any]) -> dict[str, Any]:
    consumer = _consumer(options, 500)
    left = _assign(consumer, options["topic"], tail=False)
    start, count = now(), 0
    while left:
        for message in consumer.consume(FETCH_MESSAGES, 1.0):
            error = message.error()
            if error is None:
                message.value()
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                left -= 1
            else:
                raise RuntimeError(str(error))
    elapsed = now() - start
    consumer.close()
    return {"events": count, "seconds": round(elapsed, 2), "events_per_s": round(count / elapsed)}


def _follow(options: dict[str, Any]) -> dict[str, Any]:
    consumer = _consumer(options, 50)
    _assign(consumer, options["topic"], tail=True)
    consumer.poll(1.0)
    print("ready", flush=True)
    ages: list[float] = []
    wanted = int(options["events"])
    end = now() + 120
    while len(ages) < wanted and now() < end:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        due = struct.unpack_from("<d", message.value())[0]
        if due:
            ages.append(now() - due)
    consumer.close()
    return {"events": len(ages)} | percentiles(np.array(ages[int(options.get("skip", 0)) :]))


MODES = {"topics": _topics, "write": _write, "fast": _fast, "read": _read, "follow": _follow}

if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    print(json.dumps(MODES[chosen["mode"]](chosen)), flush=True)
