"""The golden bytes that Pravega's Java client wrote (protocol/vectors.md), and round trips of everything else."""

import pytest

from sarit.client.groups import codec
from sarit.client.groups.checkpoints import Checkpoints
from sarit.client.groups.position import Checkpoint, Position
from sarit.client.groups.state import (
    AcquireSegment,
    AddReader,
    CheckpointPublished,
    CheckpointReader,
    ClearCheckpointsBefore,
    Compact,
    CreateCheckpoint,
    GroupState,
    Init,
    ReleaseSegment,
    RemoveOutstandingCheckpoints,
    RemoveReader,
    SegmentCompleted,
    UpdateDistance,
    UpdatingConfig,
)
from sarit.client.groups.values import UNBOUNDED, GroupConfig, GroupSegment, KeyPart
from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import SegmentId, StreamName

STREAM = StreamName("s", "t")
FIRST, NEXT = GroupSegment(STREAM, SegmentId(0, 0)), GroupSegment(STREAM, SegmentId(1, 3))
WHOLE = KeyPart(0.0, 1.0)
CONFIG = GroupConfig({STREAM: None}, {STREAM: None})
CONFIG_HEX = (
    "000003000000001e00000000000075300000000000000bb8010003732f7400010003732f7400010000002200000000000075300000000000000b"
    "b8010003732f7400010003732f740000000003020000001900ffffffffffffffff00000000000000000000000000000000"
)
SEGMENT_0 = "000e732f742f302e2365706f63682e30"
GOLDEN = {
    "init": (
        Init(CONFIG, {FIRST: 0}, {FIRST: 99}, {FIRST: WHOLE}),
        f"00000003000000009e6b{CONFIG_HEX}01{SEGMENT_0}000000000000000001{SEGMENT_0}0000000000000063010000002901"
        f"{SEGMENT_0}00000000000000003ff00000000000000000000000000000020000000100",
    ),
    "add reader": (AddReader("r1"), "00020001000000000400027231"),
    "remove reader": (
        RemoveReader("r1", {FIRST: 5}),
        f"00030001000000001d0002723101{SEGMENT_0}0000000000000005",
    ),
    "release": (
        ReleaseSegment("r1", FIRST, 5),
        f"00040001000000001c00027231{SEGMENT_0}0000000000000005",
    ),
    "acquire": (AcquireSegment("r1", FIRST), f"00050001000000001400027231{SEGMENT_0}"),
    "distance": (
        UpdateDistance("r1", 7, {FIRST: 0}, {FIRST: WHOLE}),
        f"00060002000000000c000272310000000000000007010000002901{SEGMENT_0}00000000000000003ff0000000000000"
        "0000000000000000",
    ),
    "completed": (
        SegmentCompleted("r1", FIRST, {NEXT: frozenset((FIRST,))}, {FIRST: WHOLE, NEXT: WHOLE}),
        f"00070002000000002e00027231{SEGMENT_0}01000e732f742f332e2365706f63682e31010000000000000000010000004102{SEGMENT_0}"
        "00000000000000003ff0000000000000000e732f742f332e2365706f63682e3100000000000000003ff0000000000000",
    ),
    "checkpoint reader": (
        CheckpointReader("cp", "r1", {FIRST: 5}),
        f"000800010000000021000263700002723101{SEGMENT_0}0000000000000005",
    ),
    "create checkpoint": (CreateCheckpoint("cp"), "00090001000000000400026370"),
    "clear": (ClearCheckpointsBefore("cp"), "000a0001000000000400026370"),
    "published": (CheckpointPublished(True), "000b0001000000000101"),
    "updating": (UpdatingConfig(True), "000c0001000000000101"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_updates_have_the_bytes_of_java(name):
    update, golden = GOLDEN[name]
    assert codec.encode(update).hex() == golden
    assert codec.decode(bytes.fromhex(golden)) == update


def test_positions_and_checkpoints_have_the_bytes_of_java():
    position = Position({FIRST: 10, NEXT: -1}, {FIRST: KeyPart(0.0, 0.5)})
    name_0, name_1 = "000e732f742f302e2365706f63682e30", "000e732f742f332e2365706f63682e31"
    assert position.to_bytes().hex() == (
        f"000002000000002a02{name_0}0a{name_1}fffffffffffffffe"
        f"010000004102{name_0}00000000000000003fe0000000000000{name_1}bff0000000000000bff0000000000000"
    )
    # Java's map has the other order, and the same content.
    java = Position.from_bytes(
        bytes.fromhex(
            f"000002000000002a02{name_1}fffffffffffffffe{name_0}0a"
            f"010000004102{name_1}bff0000000000000bff0000000000000{name_0}00000000000000003fe0000000000000"
        )
    )
    assert java.offsets == position.offsets
    assert java.ranges == {FIRST: KeyPart(0.0, 0.5), NEXT: None}

    checkpoint = Checkpoint("cp", {STREAM: StreamCut(STREAM, {SegmentId(0, 0): 10, SegmentId(1, 3): 300000})})
    golden = "000001000000002600026370010003732f7400010100000000140003732f7402000ac000000100000003400493e0"
    assert checkpoint.to_bytes().hex() == golden
    assert Checkpoint.from_bytes(bytes.fromhex(golden)) == checkpoint


def test_whole_state_round_trips():
    config = GroupConfig(
        {STREAM: {SegmentId(0, 0): 7, SegmentId(0, 1): -1}}, {STREAM: None}, 0, 100, 9, 2, 4, bytes(range(16))
    )
    merged = GroupSegment(STREAM, SegmentId(2, 4))
    state = GroupState(
        config,
        {NEXT: 3},
        {FIRST: 99, NEXT: UNBOUNDED},
        {FIRST: WHOLE, NEXT: None, merged: KeyPart(0.25, 0.5)},
        {"a": {FIRST: 12}, "b": {}},
        {merged: frozenset((FIRST, NEXT))},
        {"a": 30_000, "b": UNBOUNDED},
        {FIRST: 11, NEXT: 3},
        Checkpoints(("x", "y"), {"y": ("a", "b")}, {"x": {FIRST: 1}, "y": {NEXT: 3}}, {FIRST: 1}, False),
        True,
        joined={"a": (1 << 40, 0), "b": (77, 3)},
    )
    assert codec.decode(codec.encode(Compact(state))) == Compact(state)
    assert codec.decode(codec.encode(RemoveOutstandingCheckpoints())) == RemoveOutstandingCheckpoints()


def test_joined_updates_add_one_revision_to_the_bytes_of_java():
    known = codec.encode(Compact(GroupState(CONFIG, {}, {}, {}, {"a": {}}, joined={"a": (5, 1)})))
    unknown = codec.encode(Compact(GroupState(CONFIG, {}, {}, {}, {"a": {}})))
    revisions, added = 3, "030000001001000161000000000000000500000001"
    assert unknown[3] == revisions
    assert known == unknown[:3] + bytes([revisions + 1]) + unknown[4:] + bytes.fromhex(added)


def test_bytes_of_older_clients_are_decoded():
    first_only = codec.encode(UpdateDistance("r1", 7))[:3] + bytes.fromhex("01000000000c000272310000000000000007")
    assert codec.decode(first_only) == UpdateDistance("r1", 7)


@pytest.mark.parametrize("name", GOLDEN)
def test_truncated_or_unknown_bytes_raise_corrupt(name):
    golden = bytes.fromhex(GOLDEN[name][1])
    for length in range(len(golden)):
        with pytest.raises(Corrupt):
            codec.decode(golden[:length])
    with pytest.raises(Corrupt):
        codec.decode(bytes((0, 99)) + golden[2:])
    with pytest.raises(Corrupt):
        codec.decode(golden[:2] + b"\1" + golden[3:])
    with pytest.raises(Invalid):
        Position.from_bytes(golden)
