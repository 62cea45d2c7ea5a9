"""The messages between the sides of a link: what is read is what was written, and what is no value is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.controller.model.epochs import Epoch, SegmentRange, first_epoch
from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy, StreamConfig
from sarit.env.real import real_env
from sarit.mirror import messages
from sarit.mirror.compression import Compressor, unpack
from sarit.mirror.limits import (
    MAX_MIRROR_DATA_BYTES,
)
from sarit.mirror.values import (
    Lineage,
    LinkIdentity,
    MirrorState,
    MirrorStatus,
    Offer,
    Position,
    Round,
    StreamFacts,
)
from sarit.rpc.generated import mirror_pb2 as pb
from tests.limits import examples

LINK = LinkIdentity(b"l" * 16, "north", "edge")

# -- values ----------------------------------------------------------------------------------------

IDS = st.binary(min_size=16, max_size=16)
SMALL = st.integers(0, 1 << 30)
CUTS = st.dictionaries(st.integers(0, 1 << 62), st.integers(0, 1 << 62), max_size=4)
NAMES = st.from_regex(r"(_MARK)?[a-z0-9.\-]{1,10}", fullmatch=True).map(lambda name: StreamName("app", name))
BOUNDS = st.floats(0, 1)
EPOCHS = st.builds(
    Epoch,
    SMALL,
    st.lists(st.builds(SegmentRange, BOUNDS, BOUNDS, st.integers(0, 1 << 62)), max_size=3).map(tuple),
    st.integers(0, 1 << 50),
)
LINEAGES = st.builds(Lineage, IDS, SMALL, st.text(max_size=5), CUTS)
CONFIGS = st.builds(
    StreamConfig,
    st.builds(ScalingPolicy, st.just(ScaleType.EVENTS_PER_SECOND), st.integers(1, 9), st.integers(1, 9), SMALL)
    .map(lambda policy: replace(policy, min_segments=1 + policy.min_segments % 9)),
    st.builds(RetentionPolicy, st.just(RetentionType.SIZE), SMALL),
    st.lists(st.text("abc", min_size=1), max_size=2, unique=True).map(tuple),
    SMALL,
    SMALL,
)  # fmt: skip
FACTS = st.builds(
    StreamFacts, NAMES, IDS, SMALL, SMALL, SMALL, CONFIGS,
    st.dictionaries(st.just("example.com.team"), st.text(min_size=1, max_size=5), max_size=1), st.booleans(),
    st.booleans(), CUTS, EPOCHS, st.lists(st.text(max_size=5), max_size=2).map(tuple),
    st.lists(LINEAGES, max_size=2).map(tuple),
)  # fmt: skip
SEGMENTS = st.frozensets(st.integers(0, 1 << 62), max_size=3)
EPOCH_LISTS = st.lists(EPOCHS, max_size=2).map(tuple)
POSITIONS = st.builds(Position, NAMES, SMALL, CUTS)
OFFERS = st.builds(Offer, NAMES, CUTS, SEGMENTS, CUTS, EPOCH_LISTS, st.booleans(), SMALL, SMALL, SMALL)
ROUNDS = st.builds(Round, NAMES, CUTS, CUTS, SEGMENTS, EPOCH_LISTS, st.booleans(), CUTS)
STATES = st.builds(
    MirrorState, NAMES, st.sampled_from(MirrorStatus), st.none() | POSITIONS, CUTS, st.text("abc é", max_size=5),
    st.none() | LINEAGES, SMALL, CUTS,
)  # fmt: skip


@settings(max_examples=examples(200))
@given(FACTS, POSITIONS, OFFERS, ROUNDS, STATES)
def test_value_is_read_as_it_was_written(facts, position, offer, step, state):
    def again(message):
        return type(message).FromString(message.SerializeToString())

    # A position in a state is of the state's stream.
    state = replace(state, position=position and replace(position, name=state.name))
    assert messages.facts_of(again(messages.facts_message(facts)), "app") == facts
    assert messages.position_of(again(messages.position_message(position)), "app") == position
    assert messages.offer_of(again(messages.offer_message(offer)), "app") == offer
    assert messages.round_of(again(messages.round_message(step)), "app") == step
    assert messages.state_of(again(messages.state_message(state)), "app") == state
    assert messages.link_of(again(messages.link_message(LINK))) == LINK


CUT = pb.MirrorCut(segments=[1], offsets=[2])


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (messages.cut_of, pb.MirrorCut(segments=[1, 2], offsets=[1])),
        (messages.cut_of, pb.MirrorCut(segments=[1, 1], offsets=[1, 1])),
        (messages.cut_of, pb.MirrorCut(segments=[1], offsets=[-1])),
        (messages.cut_of, pb.MirrorCut(segments=[-1], offsets=[1])),
        (messages.epoch_of, pb.MirrorEpoch(segments=[1], low=[0.0])),
        (messages.epoch_of, pb.MirrorEpoch(segments=[1], low=[0.0], high=[float("nan")])),
        (messages.epoch_of, pb.MirrorEpoch(segments=[1], low=[0.0], high=[1.5])),
        (messages.epoch_of, pb.MirrorEpoch(number=-1)),
        (messages.lineage_of, pb.MirrorLineage(lineageId=b"short")),
        (messages.link_of, pb.MirrorLink(linkId=b"l" * 16, name="a/b", installation="c")),
        (messages.link_of, pb.MirrorLink(linkId=b"l" * 17, name="a", installation="c")),
        (lambda m: messages.position_of(m, "app"), pb.MirrorPosition(stream="a/b", lengths=CUT)),
        (lambda m: messages.position_of(m, "../app"), pb.MirrorPosition(stream="a", lengths=CUT)),
        (lambda m: messages.range_of(m, "app"), pb.MirrorRange(stream="a", offset=-1)),
        (lambda m: messages.state_of(m, "app"), pb.MirrorState(stream="a", status=77)),
        (lambda m: messages.facts_of(m, "app"), pb.MirrorFacts(stream="a", creationId=b"i" * 16, path=["p"] * 17)),
        (lambda m: messages.facts_of(m, "app"), pb.MirrorFacts(stream="a", creationId=b"i")),
        (lambda m: messages.facts_of(m, "app"), pb.MirrorFacts(stream="a", properties={"no property": "x" * 1025})),
        (lambda names: messages.names_of(names, "app"), ["a"] * 501),
    ],
)
def test_message_that_is_no_value_is_refused(read, message):
    with pytest.raises(Invalid):
        read(message)


def test_text_of_the_other_side_is_short_and_on_one_line():
    state = pb.MirrorState(stream="a", status=2, reason="refused\nERROR a line of its own\x1b[2J" + "x" * 10_000)
    reason = messages.state_of(state, "app").reason
    assert reason.startswith("refused")
    assert reason.isprintable()
    assert len(reason) < 1_000


# -- bytes -----------------------------------------------------------------------------------------

TEXT = b"temperature 21.5 " * 4000
NOISE = bytes(real_env().random.bytes(100_000))


def pack(compressor, pieces, *, zstd):
    message = pb.MirrorBytes()
    compressor.pack(message, pieces, zstd=zstd)
    return message


def test_bytes_are_compressed_where_it_helps():
    compressor = Compressor()
    packed = pack(compressor, [TEXT, TEXT], zstd=True)
    assert packed.zstd
    assert len(packed.data) < len(TEXT)
    assert unpack(packed) == TEXT + TEXT
    noise = pack(compressor, [NOISE], zstd=True)
    assert (noise.zstd, unpack(noise)) == (False, NOISE)
    # After bytes that do not get shorter it rests for a while.
    assert [pack(compressor, [TEXT], zstd=True).zstd for _ in range(16)] == [False] * 15 + [True]
    assert not pack(Compressor(), [TEXT], zstd=False).zstd


def _frame(text, **changed):
    frame = {"data": pack(Compressor(), [text], zstd=True).data, "length": len(text), "zstd": True}
    return pb.MirrorBytes(**frame | changed)


@pytest.mark.parametrize(
    "message",
    [
        _frame(TEXT, length=len(TEXT) - 1),
        _frame(TEXT, length=MAX_MIRROR_DATA_BYTES + 1),
        _frame(b"a" * (MAX_MIRROR_DATA_BYTES + 1)),
        _frame(TEXT, data=_frame(TEXT).data[:-3]),
        _frame(TEXT, data=_frame(TEXT).data + b"more"),
        _frame(TEXT, data=b"no frame"),
        pb.MirrorBytes(data=b"abc", length=2),
        pb.MirrorBytes(data=b"abc", length=-1),
    ],
)
def test_bytes_that_are_not_what_they_say_are_refused(message):
    with pytest.raises(Invalid):
        unpack(message)


def test_first_epoch_of_many_segments_fits_a_message():
    facts = StreamFacts(
        StreamName("app", "s"), b"i" * 16, 0, 0, 1, StreamConfig(), {}, sealed=False, fenced=False,
        head={s.segment: 1 << 50 for s in first_epoch(10_000, 0, 0).segments}, first=first_epoch(10_000, 0, 0),
        path=("there",),
    )  # fmt: skip
    assert messages.facts_message(facts).ByteSize() < 1 << 20
