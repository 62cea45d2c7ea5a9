"""Alarms with state per sensor: each reading is compared with all readings of its sensor before it.

    python examples/pipelines/alarms.py [--controller HOST:PORT] [--data DIR]

The sensors are the weather stations of three airports.  The state of a sensor is a count, a mean and a sum of squared
deviations, so it stays small however long the sensor runs.  Readings of a sensor share a routing key: they reach the
state in order.  The query is stopped in the middle and continues from its checkpoint, with the state it had.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root of the repository

from examples.pipelines import inputs, program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.streaming import StreamingQuery

    from examples.pipelines.inputs import Event
    from examples.pipelines.program import Place

READINGS: Final = "weather/readings"
ALARMS: Final = "weather/alarms"
DAYS: Final = 60
WARM_UP: Final = 48  # readings
DEVIATIONS: Final = 5.0
STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

State = tuple[int, float, float]


def judge(state: State, value: float) -> tuple[State, bool]:
    """The state after a reading, and whether the reading is an alarm.  An alarm does not change the state."""
    count, mean, squares = state
    if count >= WARM_UP and abs(value - mean) > DEVIATIONS * math.sqrt(squares / count) + 1e-9:
        return state, True
    count += 1
    moved = mean + (value - mean) / count
    return (count, moved, squares + (value - mean) * (value - moved)), False


def alarms_of(states: dict[str, State], events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """The alarms without Spark: what the query must find."""
    for event in events:
        reading = json.loads(event.body)
        sensor = reading["sensor"]
        states[sensor], alarm = judge(states.get(sensor, (0, 0.0, 0.0)), reading["value"])
        if alarm:
            yield reading


def start(place: Place) -> StreamingQuery:
    """The query; it continues from its checkpoint."""
    import pandas as pd
    from pyspark.sql import functions as f
    from pyspark.sql.streaming import StatefulProcessor

    class Sensor(StatefulProcessor):
        """Keeps the state of one sensor and passes on its alarms."""

        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("state", "count long, mean double, squares double")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            readings = pd.concat(rows).sort_values("time")
            state = self._state.get() if self._state.exists() else (0, 0.0, 0.0)
            alarms = []
            for value in readings["value"]:
                state, alarm = judge(state, value)
                alarms.append(alarm)
            self._state.update(state)
            yield readings.loc[alarms, ["sensor", "time", "value"]]

        def close(self) -> None:
            pass

    place.spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    readings = (
        place.spark.readStream.format("sarit")
        .schema("event string")
        .option("controller", place.controller)
        .option("stream", READINGS)
        .load()
    )
    columns = "sensor string, time string, value double"
    alarms = (
        readings.select(f.from_json("event", columns).alias("reading"))
        .select("reading.*")
        .groupBy("sensor")
        .transformWithStateInPandas(Sensor(), outputStructType=columns, outputMode="append", timeMode="none")
    )
    return (
        alarms.select(
            f.to_json(f.struct("sensor", "time", "value")).alias("event"), f.col("sensor").alias("routing_key")
        )
        .writeStream.format("sarit")
        .option("controller", place.controller)
        .option("stream", ALARMS)
        .option("checkpointLocation", place.checkpoint("alarms"))
        .outputMode("append")
        .start()
    )


def run(place: Place) -> None:
    """Half of the readings, a restart of the query, the other half."""
    place.client.create_scope("weather")
    place.client.create_stream(READINGS, segments=2)
    place.client.create_stream(ALARMS)
    events = inputs.readings(DAYS)
    half = len(events) // 2
    for part in (events[:half], events[half:]):
        with place.client.writer(READINGS) as writer:
            for event in part:
                writer.write(event.body, key=event.key)
        program.finish(start(place))
    found = [json.loads(event) for event in place.client.reader(ALARMS, end="tail")]

    def order(alarm: dict[str, Any]) -> tuple[str, str]:
        return alarm["sensor"], alarm["time"]

    program.expect("alarms", sorted(found, key=order), sorted(alarms_of({}, events), key=order))
    print(f"{len(found)} alarms in {len(events)} readings")
    worst = max((alarm for alarm in found if "wind" in alarm["sensor"]), key=lambda alarm: alarm["value"])
    print(f"  {worst['sensor']} {worst['time'][:13]}h: {worst['value']:.0f} miles per hour")


if __name__ == "__main__":
    program.main("alarms", __doc__, run)
