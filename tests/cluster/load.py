"""A writer that notes when each of its events was acknowledged."""

from __future__ import annotations

import itertools
import threading
import time

import sarit

EVENTS_AT_ONCE = 20
STREAM = "cluster/events"


class Load:
    """Writes to a stream from a thread until `stop`; its errors are collected."""

    def __init__(self, controller: str, segments: int = 8, padding_bytes: int = 0) -> None:
        self.acknowledged: list[float] = []
        self.errors: list[BaseException] = []
        self._controller = controller
        self._segments = segments
        self._padding = "x" * padding_bytes
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Load:
        with sarit.connect(self._controller, retry_timeout=120) as client:
            client.create_scope(STREAM.partition("/")[0])
            client.create_stream(STREAM, segments=self._segments)
        self._thread.start()
        self.more()
        return self

    def more(self, batches: int = 20) -> None:
        """Wait until so many batches more are acknowledged."""
        wanted = len(self.acknowledged) + batches
        while len(self.acknowledged) < wanted and not self.errors:
            time.sleep(0.01)
        assert not self.errors, self.errors

    def pause_since(self, moment: float) -> float:
        """The longest time between two acknowledgements after a moment of time.monotonic(), in seconds."""
        times = [moment, *(at for at in self.acknowledged if at > moment)]
        return max(after - before for before, after in itertools.pairwise(times))

    def stop(self) -> None:
        """End it, and check that exactly what was acknowledged is in the stream, each key in its order."""
        self._stopping.set()
        self._thread.join()
        assert not self.errors, self.errors
        self.check(self._controller)

    def check(self, controller: str) -> None:
        """Check what is in the stream."""
        with sarit.connect(controller, retry_timeout=120) as client:
            found = [event.decode().split(":")[:2] for event in client.reader(STREAM, end="tail")]
        by_key: dict[str, list[int]] = {}
        for key, number in found:
            by_key.setdefault(key, []).append(int(number))
        assert sum(map(len, by_key.values())) == len(self.acknowledged) * EVENTS_AT_ONCE
        for key, numbers in by_key.items():
            assert numbers == list(range(len(self.acknowledged))), f"key {key}"

    def _run(self) -> None:
        try:
            with sarit.connect(self._controller, retry_timeout=120) as client, client.writer(STREAM) as writer:
                batch = 0
                while not self._stopping.is_set():
                    for key in range(EVENTS_AT_ONCE):
                        writer.write(f"{key}:{batch}:{self._padding}", key=str(key))
                    writer.flush()
                    self.acknowledged.append(time.monotonic())
                    batch += 1
        except BaseException as error:
            self.errors.append(error)
