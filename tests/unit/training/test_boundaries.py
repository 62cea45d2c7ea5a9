"""Where a piece begins is the same whatever its store knows of boundaries."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.client.reader.boundaries import _ends
from sarit.core.names import SegmentId, StreamName
from sarit.training import access
from sarit.training.access import EventSource
from sarit.training.plan import Part
from tests.limits import examples


class Stream:
    """A stream of one segment, whose store knows some boundaries; answers as the client's calls."""

    def __init__(self, lengths: list[int], known: set[int]) -> None:
        self.data = b"".join(length.to_bytes(8, "big") + bytes(length) for length in lengths)
        self.begins = np.cumsum([0, *(length + 8 for length in lengths)]).tolist()
        self.known = sorted(known & set(self.begins))

    def boundaries(self, segment: SegmentId, start: int, end: int, step_bytes: int) -> list[int]:
        found = []
        for target in range(start + step_bytes, end, step_bytes):
            at = next((known for known in self.known if known >= target), len(self.data))
            if start < at < end and at not in found:
                found.append(at)
        return found

    def event_ends(self, segment: SegmentId, start: int, end: int, max_bytes: int) -> list[int]:
        assert start in self.begins
        return [start + at for at in _ends(self.data[start : min(start + max_bytes, end)])]


class Client:
    def __init__(self, stream: Stream) -> None:
        self.made = stream

    def stream(self, name: StreamName) -> Any:
        return self.made


@pytest.fixture(autouse=True)
def _short_search():
    with patch.object(access, "TRAINING_SEARCH_BYTES", 60):
        yield


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.data())
def test_first_event_at_or_after_an_offset(lengths, data) -> None:
    begins = Stream(lengths, set()).begins
    part = Part(0, 0, begins[-1])
    target = data.draw(st.one_of(st.integers(1, begins[-1]), st.sampled_from(begins)))
    for _ in range(3):
        stream = Stream(lengths, set(data.draw(st.lists(st.sampled_from(begins), max_size=5))))
        source = EventSource(Client(stream), StreamName("s", "t"))  # type: ignore[arg-type]
        known = data.draw(st.sampled_from([0, *(at for at in begins if at < target)]))
        if known < target < part.end:
            assert source.boundary(part, known, target) == next(at for at in begins if at >= target)
