"""Random appends, scales, truncations, limits, kills and restarts: each event is in exactly one micro-batch."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from sarit.core.names import SegmentId, StreamName
from sarit.spark.source.admission import Limits
from sarit.spark.source.options import parse_read
from sarit.spark.source.planner import QueryPlanner
from tests.limits import examples
from tests.unit.spark.fake_stream import FakeSource, FakeStream

STREAMS = (StreamName("s", "t"), StreamName("s", "u"))


class World:
    """Two streams that change at random, and what a query has read of them."""

    def __init__(self, rng):
        self.rng = rng
        self.streams = [FakeStream(name) for name in STREAMS]
        self.source = FakeSource(*self.streams)
        limits = rng.choice([{}, {"max_bytes": 200}, {"max_events": 5}, {"max_bytes": 500, "max_events": 7}])
        # The streams are empty when the query begins: their tails are their heads.
        start = rng.choice(["head", "tail"])
        given = parse_read({"streams": "s/t,s/u", "minPartitions": str(rng.choice([1, 1, 4])), "start": start})
        self.options = replace(given, streaming=replace(given.streaming, limits=Limits(**limits)))
        self.numbers = {stream.stream: itertools.count(2) for stream in self.streams}
        self.epochs = Counter()
        self.read = Counter()  # (stream, segment, offset) -> how often
        self.order = []  # (stream, segment) as they were read

    def append(self):
        stream = self.rng.choice(self.streams)
        active = [s for s in stream.events if s not in stream.sealed]
        for _ in range(self.rng.randrange(1, 30)):
            stream.events[self.rng.choice(active)].append(self.rng.choice([8, 9, 10, 50, 700]))

    def scale(self):
        """Replace one segment, or two, by one to three."""
        stream = self.rng.choice(self.streams)
        active = [s for s in stream.events if s not in stream.sealed]
        old = self.rng.sample(active, self.rng.randrange(1, min(2, len(active)) + 1))
        self.epochs[stream.stream] += 1
        new = [
            SegmentId(self.epochs[stream.stream], next(self.numbers[stream.stream]))
            for _ in range(self.rng.randrange(1, 4))
        ]
        stream.sealed |= set(old)
        stream.events |= {segment: [] for segment in new}
        stream.next |= {segment: {found: frozenset(old) for found in new} for segment in old}

    def truncate(self, at):
        """Truncate what was read, and delete sealed segments that a query has left."""
        stream = self.rng.choice(self.streams)
        position = at["streams"].get(str(stream.stream), {}) if at else {}
        for name, offset in position.items():
            number, _, epoch = name.partition(".#epoch.")
            segment = SegmentId(int(epoch), int(number))
            if segment in stream.events:
                stream.starts[segment] = max(stream.starts.get(segment, 0), offset)

    def take(self, ranges):
        """The tasks read: events between boundaries."""
        for part in ranges:
            stream = self.source.streams[part.stream]
            bounds = [0, *itertools.accumulate(stream.events[part.segment])]
            assert part.start in bounds
            assert part.end in bounds
            self.read.update((part.stream, part.segment, low) for low in bounds[:-1] if part.start <= low < part.end)
            self.order.append((part.stream, part.segment))

    def check(self):
        """Everything once; no segment before its predecessors' last event."""
        expected = {
            (stream.stream, segment, low)
            for stream in self.streams
            for segment, sizes in stream.events.items()
            for low in itertools.accumulate(sizes[:-1], initial=0)
            if sizes
        }
        assert set(self.read) == expected
        assert set(self.read.values()) <= {1}
        last = {place: index for index, place in enumerate(self.order)}
        first = {place: index for index, place in reversed(list(enumerate(self.order)))}
        for stream in self.streams:
            for old, successors in stream.next.items():
                for new in successors:
                    if (stream.stream, old) in last and (stream.stream, new) in first:
                        assert last[stream.stream, old] < first[stream.stream, new]


def run(seed):
    world = World(random.Random(seed))
    rng = world.rng
    planner = QueryPlanner(world.options, world.source)
    committed = None  # the last offset whose micro-batch was read
    begin = planner.initial()
    for step in range(120):
        act = rng.random()
        if step >= 60 and not (step % 20) and rng.random() < 0.5:
            planner.prepare_available_now()
        if act < 0.35 and step < 100:
            world.append()
        elif act < 0.45 and step < 100:
            world.scale()
        elif act < 0.5:
            world.truncate(committed)
        elif act < 0.6:
            planner = QueryPlanner(world.options, world.source)  # killed between two micro-batches
        else:
            start = committed or begin
            end = json.loads(json.dumps(planner.latest(start, world.options.streaming.limits)))
            if rng.random() < 0.2:
                continue  # killed before the offset was written down
            if end == start:
                continue
            ranges = planner.ranges(start, end)
            if rng.random() < 0.3:
                # Killed in the middle: more comes, and the new driver repeats the micro-batch.
                world.append()
                planner = QueryPlanner(world.options, world.source)
                again = planner.ranges(committed or planner.initial(), end)
                assert again == ranges
            world.take(ranges)
            committed = end
    planner = QueryPlanner(world.options, world.source)
    idle = 0
    while idle < 2:
        start = committed or begin
        end = planner.latest(start, world.options.streaming.limits)
        idle = idle + 1 if end == start else 0
        if end != start:
            world.take(planner.ranges(start, end))
            committed = end
    world.check()
    return len(world.read)


@pytest.mark.parametrize("first", range(0, examples(120), 30))
def test_every_event_is_in_exactly_one_micro_batch(first):
    assert sum(run(seed) for seed in range(first, first + 30)) > 3000


def test_available_now_of_random_streams_reads_exactly_what_was_there():
    for seed in range(examples(60)):
        world = World(random.Random(seed))
        for _ in range(12):
            world.rng.choice([world.append, world.append, world.scale])()
        planner = QueryPlanner(replace(world.options, start="head"), world.source)
        planner.prepare_available_now()
        start = planner.initial()
        there = sum(sum(sizes) for stream in world.streams for sizes in stream.events.values())
        taken = 0
        while True:
            if world.rng.random() < 0.5:
                world.rng.choice([world.append, world.scale])()
            end = planner.latest(start, world.options.streaming.limits)
            if end == start:
                break
            taken += sum(part.end - part.start for part in planner.ranges(start, end))
            start = end
        assert taken == there, seed
