"""Bounds and intervals of the Spark connector."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- command line and Spark --------------------------------------------------------------------
SPARK_WAIT_SECONDS: Final = 60  # the default of the connector's option waitSeconds
SPARK_REGISTRY_RETRY_SECONDS: Final = 0.5  # between two questions to a schema registry that does not reply
SPARK_SAMPLE_SECONDS: Final = 2  # the default of the connector's option sampleSeconds
SPARK_TASK_BYTES: Final = 256 * KIB  # from this size on, a micro-batch's range of a segment gets a task of its own
SPARK_STREAMS_AT_ONCE: Final = 16  # how many streams a driver asks about concurrently
SPARK_SAMPLE_BYTES: Final = 64 * KIB  # how much a driver reads of a segment to estimate its events
SPARK_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000  # the default of the connector's option maxTriggerDelay
SPARK_DISCOVERY_SECONDS: Final = 30  # the default of the connector's option discoverySeconds
SPARK_PUBLISH_SECONDS: Final = 5.0  # the least time between two publications of a reader group's position
# The sink retains the outcomes of as many micro-batches as Spark can repeat (minBatchesToRetain), and drops older
# outcomes at every 20th batch.
SPARK_BATCHES_KEPT: Final = 100
SPARK_BATCHES_PER_PRUNE: Final = 20
SPARK_LEASE_SECONDS: Final = 600  # the longest lease that a controller allows by default
# The lease of a transaction until it is registered: long enough for a busy table, and not long after a crash.
SPARK_FIRST_LEASE_SECONDS: Final = 30
# How many requests of one batch are in progress at once.
SPARK_REQUESTS_AT_ONCE: Final = 64
SPARK_TABLE_PARTITIONS: Final = 4
SPARK_QUERY_ID_BYTES: Final = 16
ARROW_EVENT_BYTES: Final = 1 * MIB  # the size of an event with many rows, with format arrow
SPARK_PARTITION_BYTES: Final = 128 * MIB  # the default of the connector's option maxBytesPerPartition
SPARK_RANGE_BYTES: Final = 64 * KIB  # the cost of beginning to read a range, in bytes that are read in that time
SPARK_LAST_EVENTS_BYTES: Final = 1 * MIB  # how far back from the end the last events are first searched
# The step in which event boundaries near the offsets of a filter are searched, and how many steps away at most.
SPARK_FILTER_STEP_BYTES: Final = 1 * MIB
SPARK_FILTER_STEPS: Final = 64
SPARK_VIEW_ATTEMPTS: Final = 3  # to find a snapshot of a table above which the stream is still there
SPARK_SEARCH_EVENTS: Final = 4096  # that are searched at once, with option search
