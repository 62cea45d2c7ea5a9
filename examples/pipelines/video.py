"""Frames of a camera from a byte stream to Spark, and what they show back into a stream of events.

    python examples/pipelines/video.py [--controller HOST:PORT] [--data DIR]

The camera writes frames into a byte stream, and for each frame that is durable an event with its place.  Spark streams
these small events.  Tasks read the frames themselves from the byte stream, many at once, and compare each with the one
before it.  So no frame passes through the driver, and the features are written exactly once.

The frames are made up, 160 x 120 points of grey: a bright square moves, and every 40 frames the scene changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root of the repository

import numpy as np

from examples.pipelines import program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql.streaming import StreamingQuery

    import sarit
    from examples.pipelines.program import Place

FRAMES: Final = "studio/frames"  # a byte stream
PLACES: Final = "studio/places"
FEATURES: Final = "studio/features"
HEIGHT, WIDTH = 120, 160
COUNT: Final = 200
SCENE: Final = 40  # frames
FRAMES_PER_KEY: Final = 25


def frame(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The frame of a number."""
    points = np.full((HEIGHT, WIDTH), 40 + 60 * (number // SCENE % 3), np.uint8)
    left = 2 * number % (WIDTH - 20)
    points[50:70, left : left + 20] = 250
    return points


def features(number: int, now: np.ndarray[Any, Any], before: np.ndarray[Any, Any] | None) -> dict[str, Any]:
    """What one frame shows, compared with the one before it."""
    motion = 0.0 if before is None else float(np.abs(now.astype(np.int16) - before).mean())
    return {
        "frame": number,
        "brightness": round(float(now.mean()), 3),
        "motion": round(motion, 3),
        "cut": motion > 25,
    }


def watching(controller: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The work of a task: places of frames to features."""

    def watch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        import sarit

        size = HEIGHT * WIDTH
        with sarit.connect(controller, wait=60) as client, client.byte_reader(FRAMES) as reader:
            for batch in batches:
                found, last = [], (-1, None)
                for place in map(json.loads, batch.column("event").to_pylist()):
                    number = place["offset"] // size
                    if last[0] != number - 1 and number:  # frames of another key lie between
                        reader.seek(place["offset"] - size)
                        last = (number - 1, np.frombuffer(reader.read_exactly(size), np.uint8).reshape(HEIGHT, WIDTH))
                    elif not number:  # the first frame, maybe after frames of another key
                        reader.seek(0)
                        last = (-1, None)
                    now = np.frombuffer(reader.read_exactly(size), np.uint8).reshape(HEIGHT, WIDTH)
                    found.append(json.dumps(features(number, now, last[1])))
                    last = (number, now)
                yield pa.RecordBatch.from_arrays([pa.array(found, pa.string())], names=["event"])

    return watch


def record(client: sarit.Client, first: int, end: int) -> None:
    """Write frames, and the place of each when it is durable: a task never waits for a frame."""
    with client.byte_writer(FRAMES) as camera, client.writer(PLACES) as places:
        for start in range(first, end, FRAMES_PER_KEY):
            numbers = range(start, min(start + FRAMES_PER_KEY, end))
            for number in numbers:
                camera.write(frame(number).tobytes())
            camera.flush()
            for number in numbers:
                places.write(json.dumps({"offset": number * HEIGHT * WIDTH}), key=str(number // FRAMES_PER_KEY))


def start(place: Place) -> StreamingQuery:
    """The query; it continues from its checkpoint."""
    return (
        place.spark.readStream.format("sarit")
        .schema("event string")
        .option("controller", place.controller)
        .option("stream", PLACES)
        .load()
        .mapInArrow(watching(place.controller), "event string")
        .writeStream.format("sarit")
        .option("controller", place.controller)
        .option("stream", FEATURES)
        .option("checkpointLocation", place.checkpoint("video"))
        .start()
    )


def run(place: Place) -> None:
    """The camera records while the query runs."""
    place.client.create_scope("studio")
    place.client.create_stream(FRAMES)
    place.client.create_stream(PLACES, segments=2)
    place.client.create_stream(FEATURES)
    record(place.client, 0, COUNT // 2)
    query = start(place)
    try:
        record(place.client, COUNT // 2, COUNT)
        query.processAllAvailable()
    finally:
        query.stop()
    found = [json.loads(event) for event in place.client.reader(FEATURES, end="tail")]
    wanted = [features(number, frame(number), frame(number - 1) if number else None) for number in range(COUNT)]
    program.expect("features", sorted(found, key=lambda row: row["frame"]), wanted)
    cuts = sorted(row["frame"] for row in found if row["cut"])
    print(f"{len(found)} frames; the scene changes at {', '.join(map(str, cuts))}")


if __name__ == "__main__":
    program.main("video", __doc__, run)
