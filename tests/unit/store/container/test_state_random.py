"""The state of a container against plain bytes: what is in flight, what is durable, and what the log returns.

Operations are checked at once, and become durable in their order, some at a time.  The test has two simple models, one
of everything accepted and one of what is durable; and a second state that replays the durable operations from their
bytes, as recovery does: it must be equal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed, Truncated
from sarit.core.limits import NOT_EXISTS, NULL_ATTRIBUTE_VALUE
from sarit.store.container.operations import FORMAT_VERSION, FRAME_HEADER, KIND_STREAM, KIND_TABLE_HASH, decode_frame
from sarit.store.container.segment import Attribute, slice_blocks
from sarit.store.container.state import ContainerState, WrongEventNumber, append_at, set_mirror
from sarit.wire.limits import NO_VERSION
from tests.limits import examples

NAMES = ("a", "b", "c")
TABLE = "t"
TABLE_POSITION = 1 << 48
WRITERS = (b"1" * 16, b"2" * 16)
KEYS = (b"k", b"l")
names, writers, keys = st.sampled_from(NAMES), st.sampled_from(WRITERS), st.sampled_from(KEYS)


@dataclass
class Plain:
    """The expected segment."""

    data: bytes = b""
    start: int = 0
    sealed: bool = False
    numbers: dict = field(default_factory=dict)
    begin: int = 0
    mirror: bool = False

    @property
    def length(self):
        return self.begin + len(self.data)


class World(dict):
    """Segments by name, and the table's entries: key -> (value, version)."""

    def __init__(self):
        super().__init__()
        self.table: dict = {}


def copied(world):
    made = World()
    made.update({name: replace(p, numbers=dict(p.numbers)) for name, p in world.items()})
    made.table = dict(world.table)
    return made


class Container(RuleBasedStateMachine):
    """Random operations on a `ContainerState`, and on another one that replays its log."""

    def __init__(self):
        super().__init__()
        self.state, self.replayed = ContainerState(), ContainerState()
        self.accepted, self.durable = World(), World()
        self.in_flight = deque()
        self.wall = 0
        self.made = 0

    @initialize()
    def begin(self):
        create = self.state.create(
            TABLE, kind=KIND_TABLE_HASH, key_length=0, scale_type=0, target_rate=0, rollover=0, offset=TABLE_POSITION
        )
        self.accept(create)
        self.make_durable(1)

    def accept(self, operation):
        """Encode an accepted operation into the next frame; the caller updates the models."""
        self.in_flight.append((operation, copied(self.accepted)))

    def segment(self, name):
        return self.state.names.get(name)

    def missing(self, name):
        return name not in self.accepted

    # -- operations -----------------------------------------------------------------------------

    @rule(name=names, offset=st.sampled_from([0, 0, 3, 1 << 50]), mirror=st.booleans())
    def create(self, name, offset, mirror):
        try:
            operation = self.state.create(
                name, kind=KIND_STREAM, key_length=0, scale_type=0, target_rate=0, rollover=0, offset=offset,
                mirror=mirror,
            )  # fmt: skip
        except Exists:
            assert name in self.accepted
            return
        assert self.missing(name)
        self.accepted[name] = Plain(start=offset, begin=offset, mirror=mirror)
        self.accept(operation)

    @rule(name=names, length=st.integers(0, 5), far=st.integers(-1, 1))
    def append_at(self, name, length, far):
        """`far`: the error of the offset."""
        segment = self.segment(name)
        if segment is None:
            assert self.missing(name)
            return
        self.made += 1
        data = bytes((self.made + at) % 256 for at in range(length))
        end = 0 if self.missing(name) else self.accepted[name].length
        try:
            operation = append_at(self.state, segment, data, end + far)
        except NotFound:
            assert self.missing(name)
        except Sealed:
            assert self.accepted[name].sealed
        except Conflict as error:
            actual = error.actual
            assert (far != 0, actual) == (True, end)
        else:
            assert (far, operation.offset) == (0, end)
            self.accepted[name].data += data
            self.accept(operation)

    @rule(name=names, mirror=st.booleans())
    def set_mirror(self, name, mirror):
        self.on(name, lambda segment: set_mirror(segment, mirror), lambda plain: setattr(plain, "mirror", mirror))

    @rule(name=names, writer=writers, length=st.integers(0, 5), wrong=st.booleans(), far=st.integers(-1, 1))
    def append(self, name, writer, length, wrong, far):
        """`far`: the error of the expected offset; -1: unconditional."""
        segment = self.segment(name)
        if segment is None:
            assert self.missing(name)
            return
        attribute = segment.attributes.setdefault(writer, Attribute(NULL_ATTRIBUTE_VALUE))
        known = (
            NULL_ATTRIBUTE_VALUE
            if self.missing(name)
            else self.accepted[name].numbers.get(writer, NULL_ATTRIBUTE_VALUE)
        )
        self.made += 1
        data = bytes((self.made + at) % 256 for at in range(length))
        number = max(known, 0) + 1
        where = None if far < 0 else (0 if self.missing(name) else self.accepted[name].length) + far
        try:
            operation = self.state.append(
                segment, attribute, attribute.owner, known + (7 if wrong else 0), writer=writer, number=number,
                events=1, parts=[data], length=length, expected_offset=where,
            )  # fmt: skip
        except NotFound:
            assert self.missing(name)
        except Sealed:
            assert self.accepted[name].sealed
        except WrongEventNumber:
            assert wrong
        except Conflict:
            assert far > 0
        else:
            plain = self.accepted[name]
            assert not plain.sealed
            assert not wrong
            assert far <= 0
            assert operation.offset == plain.length
            plain.data += data
            plain.numbers[writer] = number
            self.accept(operation)

    @rule(name=names)
    def seal(self, name):
        self.on(name, lambda segment: self.state.seal(segment), lambda plain: setattr(plain, "sealed", True))

    @rule(name=names, share=st.floats(-0.2, 1.2))
    def truncate(self, name, share):
        plain = Plain() if self.missing(name) else self.accepted[name]
        offset = max(0, plain.begin + round(share * len(plain.data)))

        def update_model(plain):
            assert plain.start <= offset <= plain.length
            plain.start = offset

        self.on(name, lambda segment: self.state.truncate(segment, offset), update_model, outside=offset)

    @rule(name=names)
    def delete(self, name):
        self.on(name, lambda segment: self.state.delete(segment), lambda plain: self.accepted.pop(name))

    def on(self, name, act, update_model, outside=None):
        segment = self.segment(name)
        if segment is None:
            assert self.missing(name)
            return
        try:
            operation = act(segment)
        except NotFound:
            assert self.missing(name)
        except Sealed:
            assert self.accepted[name].sealed
        except Truncated:
            plain = self.accepted[name]
            assert not plain.start <= outside <= plain.length
        else:
            assert not self.missing(name)
            update_model(self.accepted[name])
            self.accept(operation)

    @rule(into=names, source=names, far=st.integers(-1, 1))
    def merge(self, into, source, far):
        """`far`: the error of the expected offset; -1: any offset."""
        one, other = self.segment(into), self.segment(source)
        if one is None or other is None or into == source:
            return
        end = 0 if self.missing(into) else self.accepted[into].length
        try:
            operation = self.state.merge(one, other, ((WRITERS[0], self.made),), None if far < 0 else end + far)
        except NotFound:
            assert self.missing(into) or self.missing(source)
        except Sealed:
            assert self.accepted[into].sealed
        except Invalid:
            assert self.accepted[source].start
        except Conflict as error:
            actual = error.actual
            assert (far, actual) == (1, end)
        else:
            assert far <= 0
            merged = self.accepted.pop(source)
            assert not self.accepted[into].sealed
            assert not merged.start
            self.accepted[into].data += merged.data
            self.accepted[into].numbers[WRITERS[0]] = self.made
            self.accept(operation)

    @rule(
        changed=st.lists(
            st.tuples(keys, st.booleans(), st.sampled_from(["any", "right", "wrong"])),
            max_size=2,
            unique_by=lambda c: c[0],
        )
    )
    def update_table(self, changed):
        segment = self.segment(TABLE)
        table = self.accepted.table
        changes = []
        for key, removes, condition in changed:
            self.made += 1
            version = table[key][1] if key in table else NOT_EXISTS
            expected = {"any": NO_VERSION, "right": version, "wrong": version + 100}[condition]
            changes.append((key, None if removes else b"%d" % self.made, expected))

        def current(key):
            state = segment.table
            return state.pending.get(key) or state.dirty.get(key)

        try:
            operation = self.state.update_table(segment, changes, current, None)
        except Conflict:
            assert any(condition == "wrong" for _, _, condition in changed)
            return
        assert all(condition != "wrong" for _, _, condition in changed)
        versions = {entry.key: entry.version for entry in operation.entries}
        for key, value, _ in changes:
            if value is None:
                table.pop(key, None)
            else:
                assert versions[key] > max([v for _, v in table.values()], default=-1) or len(changes) > 1
                table[key] = (value, versions[key])
        self.accept(operation)

    @rule(count=st.integers(1, 5))
    def make_durable(self, count):
        """A frame with some operations is durable: applied here, and read from its bytes by the other state."""
        taken = [self.in_flight.popleft() for _ in range(min(count, len(self.in_flight)))]
        if not taken:
            return
        self.wall += 1
        out = [FRAME_HEADER.pack(FORMAT_VERSION, self.wall, len(taken))]
        for operation, _ in taken:
            operation.encode(out)
        payload = b"".join(bytes(part) for part in out)
        for operation, world in taken:
            self.state.apply(operation, self.wall)
            self.durable = world
        wall, operations = decode_frame(memoryview(payload))
        assert wall == self.wall
        for operation in operations:
            self.replayed.replay(operation, wall)

    # -- invariants ----------------------------------------------------------------------------

    @invariant()
    def segments_satisfy_their_invariants(self):
        for state in (self.state, self.replayed):
            for segment in state.segments.values():
                if segment.created and not segment.deleted:
                    segment.check()

    @invariant()
    def readers_see_what_is_durable(self):
        for state in (self.state, self.replayed):
            alive = {s.name: s for s in state.segments.values() if s.created and not s.deleted and s.name != TABLE}
            assert alive.keys() == self.durable.keys()
            for name, plain in self.durable.items():
                segment = alive[name]
                assert (segment.length, segment.start, segment.sealed) == (plain.length, plain.start, plain.sealed)
                assert segment.mirror == plain.mirror
                read = b"".join(slice_blocks(segment.tail, plain.start, 1 << 20))
                assert read == plain.data[plain.start - plain.begin :]
                numbers = {key: attribute.applied for key, attribute in segment.attributes.items()}
                assert {k: v for k, v in numbers.items() if v != NULL_ATTRIBUTE_VALUE} == plain.numbers

    @invariant()
    def table_holds_what_is_durable(self):
        for state in (self.state, self.replayed):
            table = state.names.get(TABLE)
            if table is not None and table.created:
                entries = {k: (e.value, e.version) for k, e in table.table.dirty.items() if e.value is not None}
                assert entries == self.durable.table
                assert all(version >= TABLE_POSITION for _, version in entries.values())
                assert table.entries == len(entries)

    @invariant()
    def replayed_state_equals_applied_state(self):
        def records(state):
            return [s.record() for s in state.segments.values() if s.created and not s.deleted]

        assert records(self.state) == records(self.replayed)

    @invariant()
    def dirty_bytes_are_counted(self):
        tails = [block for segment in self.replayed.segments.values() for block in segment.tail]
        assert self.replayed.dirty.append_bytes == sum(block.length for block in tails)
        assert self.replayed.dirty.append_blocks == len(tails)
        for state in (self.state, self.replayed):
            state.dirty.check()
        if not self.in_flight:
            assert self.state.dirty.charged_bytes == self.replayed.dirty.charged_bytes


Container.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=40)
TestContainer = Container.TestCase
