"""Bounds and intervals of the Spark connector."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- command line and Spark --------------------------------------------------------------------
SPARK_WAIT_SECONDS: Final = 60  # the default of the connector's option waitSeconds
SPARK_SAMPLE_SECONDS: Final = 2  # the default of the connector's option sampleSeconds
SPARK_TASK_BYTES: Final = 256 * KIB  # a micro-batch's range of a segment that is worth a task of its own
SPARK_STREAMS_AT_ONCE: Final = 16  # a driver asks about so many streams at the same time
SPARK_SAMPLE_BYTES: Final = 64 * KIB  # what a driver reads of a segment to estimate its events
SPARK_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000  # the default of the connector's option maxTriggerDelay
SPARK_DISCOVERY_SECONDS: Final = 30  # the default of the connector's option discoverySeconds
SPARK_PUBLISH_SECONDS: Final = 5.0  # the position of a reader group is published at most that often
# The sink retains the outcomes of as many micro-batches as Spark can run again (minBatchesToRetain), and drops older
# ones at every 20th batch.
SPARK_BATCHES_KEPT: Final = 100
SPARK_BATCHES_PER_PRUNE: Final = 20
SPARK_LEASE_SECONDS: Final = 600  # the most that a controller allows by default
# The lease of a transaction until it is registered: enough for a busy table, short enough for an attempt that dies.
SPARK_FIRST_LEASE_SECONDS: Final = 30
# Requests of one batch that are under way at the same time.
SPARK_REQUESTS_AT_ONCE: Final = 64
SPARK_TABLE_PARTITIONS: Final = 4
SPARK_QUERY_ID_BYTES: Final = 16
ARROW_EVENT_BYTES: Final = 1 * MIB  # of rows that become one event, format arrow
SPARK_PARTITION_BYTES: Final = 128 * MIB  # the default of the connector's option maxBytesPerPartition
SPARK_RANGE_BYTES: Final = 64 * KIB  # what beginning to read a range costs, as bytes read in that time
SPARK_LAST_EVENTS_BYTES: Final = 1 * MIB  # first step back from the end, in search of the last events
# Event boundaries around the offsets of a filter are searched with this step, at most that many steps away.
SPARK_FILTER_STEP_BYTES: Final = 1 * MIB
SPARK_FILTER_STEPS: Final = 64
