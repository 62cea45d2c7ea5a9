"""Hours of measurement are reported when they are over, once and complete, though stations differ in time."""

import threading
import time

import sarit
from examples.windowed_time import windows
from tests.examples.fast_node import fast_node
from tests.limits import HANG_SECONDS


def until(condition) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_hour_is_reported_as_soon_as_it_is_over(tmp_path) -> None:
    reported: list[tuple[int, int, float]] = []
    late: list[int] = []
    with fast_node(tmp_path / "node", 100) as address, sarit.connect(address) as client:
        client.create_scope("weather")
        client.create_stream("weather/readings", segments=2)
        reading = threading.Thread(
            target=lambda: late.append(windows.run(client, "weather/readings", lambda *hour: reported.append(hour)))
        )
        with (
            client.writer("weather/readings", name="north") as north,
            client.writer("weather/readings", name="south") as south,
        ):
            north.note_time(0)
            south.note_time(0)
            reading.start()

            def measure(writer, station: str, hour: int) -> None:
                for minute in range(hour * 60, hour * 60 + 60, 6):
                    writer.write(f"{station},{minute},{hour}", key=f"{station}{minute}")
                writer.note_time(hour * 60 + 60)

            measure(north, "north", 0)
            measure(north, "north", 1)  # north is ahead, and nothing is over yet
            assert reported == []
            client.stream("weather/readings").scale(4)
            measure(south, "south", 0)
            until(lambda: reported == [(0, 20, 0.0)])
            measure(south, "south", 1)
            until(lambda: reported == [(0, 20, 0.0), (1, 20, 1.0)])
            north.write("north,5,0", key="north")  # against its own note
            north.write("north,125,2", key="north")
        client.seal_stream("weather/readings")
        reading.join(HANG_SECONDS)
        assert reported == [(0, 20, 0.0), (1, 20, 1.0), (2, 1, 2.0)]
        assert late == [1]
