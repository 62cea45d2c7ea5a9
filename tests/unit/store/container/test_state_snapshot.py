"""Snapshots of a container's state by copy-on-write, and whom an applied operation wakes."""

import pytest

from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.segment import Attribute
from sarit.store.container.state import ContainerState

WRITER = b"w" * 16


class Rig:
    """A state with segments `a` and `b`, whose operations are applied at once."""

    def __init__(self):
        self.state = ContainerState()
        for name in ("a", "b"):
            self.apply(
                self.state.create(name, kind=0, key_length=0, scale_type=0, target_rate=0, rollover=0),
            )

    def apply(self, operation):
        woken = self.state.apply(operation, 0)
        self.state.applied_frame += 1
        return woken

    def segment(self, name):
        return self.state.names[name]

    def append(self, name, data):
        segment = self.segment(name)
        attribute = segment.attributes.setdefault(WRITER, Attribute(NULL_ATTRIBUTE_VALUE))
        attribute.owner = self
        number = max(attribute.assigned, 0) + 1
        return self.apply(
            self.state.append(
                segment, attribute, self, attribute.assigned, writer=WRITER, number=number, events=1, parts=[data],
                length=len(data),
            )
        )  # fmt: skip

    def checkpoint(self):
        snapshot = self.state.begin_checkpoint()
        while snapshot.uncopied:
            snapshot.copy_next(1)
        return snapshot


def copied(snapshot, segment):
    copy = snapshot.segments[segment.id]
    return copy.length, copy.start, copy.deleted, [(block.offset, block.parts) for block in copy.blocks]


@pytest.mark.parametrize("change", ["append", "truncate", "seal", "delete", "merge"])
def test_snapshot_holds_segment_as_it_was_before_a_later_change(change):
    rig = Rig()
    rig.append("a", b"first")
    state, segment = rig.state, rig.segment("a")
    record = segment.record()
    snapshot = state.begin_checkpoint()
    if change == "append":
        rig.append("a", b"second")
    elif change == "truncate":
        rig.apply(state.truncate(segment, 5))
    elif change == "seal":
        rig.apply(state.seal(segment))
    elif change == "delete":
        rig.apply(state.delete(segment))
    else:
        rig.apply(state.merge(rig.segment("b"), segment, ()))
    assert segment.id not in snapshot.uncopied
    snapshot.copy_next(10)
    assert not snapshot.uncopied
    assert copied(snapshot, segment) == (5, 0, False, [(0, [b"first"])])
    assert snapshot.segments[segment.id].record == record
    assert snapshot.segments[segment.id].attributes == {WRITER: 1}
    assert segment.id in state.changed, "the next checkpoint must see the change"


def test_unchanged_segment_is_not_in_next_snapshot():
    rig = Rig()
    rig.state.end_checkpoint(rig.checkpoint())
    rig.append("a", b"data")
    snapshot = rig.checkpoint()
    assert list(snapshot.segments) == [rig.segment("a").id]


def test_checkpoint_is_refused_while_another_is_in_progress():
    rig = Rig()
    snapshot = rig.checkpoint()
    with pytest.raises(AssertionError, match="abandoned"):
        rig.state.begin_checkpoint()
    rig.state.end_checkpoint(snapshot)
    rig.state.begin_checkpoint()


def test_checkpoint_cannot_end_before_all_segments_are_copied():
    rig = Rig()
    snapshot = rig.state.begin_checkpoint()
    snapshot.copy_next(1)
    with pytest.raises(AssertionError):
        rig.state.end_checkpoint(snapshot)


def test_apply_returns_segments_with_waiters_only():
    rig = Rig()
    a, b = rig.segment("a"), rig.segment("b")
    assert rig.append("a", b"data") == ()
    a.waiters.append(lambda: None)
    assert rig.append("a", b"data") == (a,)
    assert rig.append("b", b"data") == ()
    assert rig.apply(rig.state.merge(b, a, ())) == (a,)
    assert (a.in_flight, b.in_flight) == (0, 0)
