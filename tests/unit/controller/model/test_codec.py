"""The bytes of records: round trips, golden bytes, truncated bytes, a newer version."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.model import codec
from sarit.controller.model.creation import creation_id
from sarit.controller.model.epochs import first_epoch
from sarit.controller.model.records import (
    CompletedRecord,
    CreationRecord,
    CutRecord,
    GroupRecord,
    MakerRecord,
    ScopeRecord,
    State,
    StreamRecord,
    SubscriberRecord,
    TableRecord,
    TransactionRecord,
    TxnState,
    Work,
    WorkKind,
    WriterRecord,
)
from sarit.core.errors import Corrupt
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy, StreamConfig
from tests.unit.controller.model.histories import histories

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
millis = st.integers(0, (1 << 48) - 1)
names = st.text("abc.-0", min_size=1, max_size=8)
cuts = st.dictionaries(st.integers(0, (1 << 62) - 1), int64, max_size=4)
configs = st.builds(
    StreamConfig,
    st.builds(ScalingPolicy, st.sampled_from(ScaleType), int32, int32, int32),
    st.builds(RetentionPolicy, st.sampled_from(RetentionType), int64, int64),
    st.lists(st.text(max_size=5), max_size=3).map(tuple),
    int64,
    int64,
)
works = st.builds(
    Work,
    st.sampled_from([kind for kind in WorkKind if kind is not WorkKind.NONE]),
    st.lists(st.integers(0, (1 << 62) - 1), max_size=3).map(tuple),
    histories(3),
    st.lists(st.integers(0, (1 << 128) - 1), max_size=3).map(tuple),
)
streams = st.builds(
    StreamRecord,
    st.sampled_from(State),
    configs,
    millis,
    st.integers(0, 1 << 29),
    histories(6),
    cuts,
    st.one_of(st.just(Work()), works),
    st.just("") | names,
)
cut_lists = st.lists(
    st.tuples(st.builds(StreamName, names, names), cuts.map(lambda cut: tuple(sorted(cut.items())))), max_size=3
).map(tuple)
groups = st.builds(
    GroupRecord, st.sampled_from(State), names, int64, int64, int64, int32, int32, int64, cut_lists, cut_lists,
    st.booleans(), st.lists(st.builds(StreamName, names, names), max_size=2).map(tuple),
)  # fmt: skip
tables = st.builds(TableRecord, st.sampled_from(State), int64, int32, int32, int32, int64, int64)
transactions = st.builds(
    TransactionRecord,
    st.sampled_from(TxnState),
    int32,
    int64,
    int64,
    int64,
    int64,
    st.booleans(),
    names,
    st.none() | int64,
)

KINDS = {
    "scope": (st.builds(ScopeRecord, st.binary(min_size=8, max_size=8), int64), codec.encode_scope, codec.decode_scope),
    "stream": (streams, codec.encode_stream, codec.decode_stream),
    "chunk": (histories(6), codec.encode_chunk, codec.decode_chunk),
    "group": (groups, codec.encode_group, codec.decode_group),
    "table": (tables, codec.encode_table, codec.decode_table),
    "subscriber": (st.builds(SubscriberRecord, int64, names, cuts), codec.encode_subscriber, codec.decode_subscriber),
    "writer": (st.builds(WriterRecord, int64, cuts, st.booleans()), codec.encode_writer, codec.decode_writer),
    "cut": (st.builds(CutRecord, millis, millis, cuts), codec.encode_cut, codec.decode_cut),
    "transaction": (transactions, codec.encode_transaction, codec.decode_transaction),
    "completed": (
        st.builds(CompletedRecord, st.sampled_from(TxnState), int64), codec.encode_completed, codec.decode_completed,
    ),
    "number": (st.integers(0, 1 << 40), codec.encode_number, codec.decode_number),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_record_comes_back_as_it_was(kind, data):
    strategy, encode, decode = KINDS[kind]
    record = data.draw(strategy)
    stored = encode(record)
    assert decode(stored) == record
    assert encode(decode(stored)) == stored


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_damage_is_reported_and_never_guessed_at(kind, data):
    strategy, encode, decode = KINDS[kind]
    stored = encode(data.draw(strategy))
    for bad in (b"", b"\x04" + stored[1:], stored + b"\0", stored[: data.draw(st.integers(0, len(stored) - 1))]):
        with pytest.raises(Corrupt):
            decode(bad)


@given(st.binary(max_size=60), st.sampled_from(sorted(KINDS)))
def test_any_bytes_are_a_record_or_corrupt(noise, kind):
    with contextlib.suppress(Corrupt):
        KINDS[kind][2](b"\x02" + noise)


def test_a_stream_to_the_byte():
    """The example of docs/formats/controller-records.md."""
    config = StreamConfig(
        ScalingPolicy(ScaleType.FIXED, 0, 0, 2), RetentionPolicy(RetentionType.TIME, 1000, 0), ("a",), 0, 0
    )
    record = StreamRecord(State.ACTIVE, config, 5, 0, (first_epoch(2, 0, 5),))
    assert codec.encode_stream(record) == bytes.fromhex(
        "02 02"  # version, ACTIVE
        "00 00000000 00000000 00000002"  # fixed, target rate, factor, least number of segments
        "01 00000000000003e8 0000000000000000"  # by time: 1000 ms, no maximum
        "0000000000000000 0000000000000000"  # timestamp aggregation, rollover
        "01 0001 61"  # one tag: "a"
        "05 00"  # created at 5 ms, first segment number 0
        "01 00 05 00 02"  # one epoch: number 0, at 5 ms, nothing gone, 2 segments
        "00 0000000000000000  01 3fe0000000000000"  # 0.#epoch.0 from 0.0, 1.#epoch.0 from 0.5
        "00 00"  # no head, no work
    )
    assert codec.decode_stream(codec.encode_stream(record)) == record


def test_a_mirror_is_the_stream_in_a_version_of_its_own_and_the_name_of_its_link():
    record = StreamRecord(State.ACTIVE, StreamConfig(), 5, 0, (first_epoch(2, 0, 5),))
    plain, mirror = codec.encode_stream(record), codec.encode_stream(dataclasses.replace(record, link="up"))
    assert mirror == b"\x03" + plain[1:] + bytes.fromhex("0002 7570")
    assert codec.decode_stream(mirror).mirrored
    assert not codec.decode_stream(plain).mirrored
    assert codec.decode_stream_config(mirror) == record.config
    with pytest.raises(Corrupt):
        codec.decode_stream(b"\x03" + plain[1:] + b"\0\0")


def test_maker_of_a_group_has_the_bytes_of_the_page():
    record = MakerRecord("id", "alice")
    assert codec.encode_maker(record) == bytes.fromhex("02 0002 6964 0005 616c696365")
    assert codec.decode_maker(codec.encode_maker(record)) == record


def test_the_state_can_be_read_without_decoding():
    record = StreamRecord(State.DELETING, StreamConfig(), 0, 0, (first_epoch(1, 0, 0),))
    assert codec.is_deleting(codec.encode_stream(record))
    assert not codec.is_deleting(codec.encode_stream(dataclasses.replace(record, state=State.SEALED)))
    table = TableRecord(State.DELETING, 0, 1, 1, 1, 0, 0)
    assert codec.is_deleting(codec.encode_table(table))
    group = GroupRecord(State.DELETING, "", 0, 0, 0, 0, 0, 0, (), ())
    assert codec.is_deleting(codec.encode_group(group))


def test_a_plain_stream_is_small():
    """Records of 100,000 streams and as many watermark streams are stored: their size matters."""
    record = StreamRecord(State.ACTIVE, StreamConfig(), 1 << 41, 0, (first_epoch(1, 0, 1 << 41),))
    assert len(codec.encode_stream(record)) < 100


def test_properties_have_the_bytes_of_their_page():
    data = bytes.fromhex("02010009 74696d652d756e6974 00077365636f6e6473")
    assert codec.encode_properties({"time-unit": "seconds"}) == data
    assert codec.decode_properties(data) == {"time-unit": "seconds"}
    two = {"a.b": "ä", "c.d": ""}
    assert codec.encode_properties(dict(reversed(two.items()))) == codec.encode_properties(two)
    assert codec.decode_properties(codec.encode_properties(two)) == two
    for wrong in (data[:-1], data + b"\0", b"\3" + data[1:], b"\x02\xff\xff\xff\xff"):
        with pytest.raises(Corrupt):
            codec.decode_properties(wrong)


def test_creation_id_has_the_bytes_of_its_page_and_is_derived_where_there_is_none():
    record = CreationRecord(3, bytes(range(16)))
    data = bytes.fromhex("0203000102030405060708090a0b0c0d0e0f")
    assert codec.encode_creation(record) == data
    assert codec.decode_creation(data) == record
    for wrong in (data[:-1], data + b"\0", b"\3" + data[1:]):
        with pytest.raises(Corrupt):
            codec.decode_creation(wrong)
    assert creation_id(bytes(8), "t", 3, record) == bytes(range(16))
    derived = creation_id(bytes(8), "t", 4, record)
    assert derived == creation_id(bytes(8), "t", 4, None) == bytes.fromhex("244426db56013c28e5dc766fb46839de")
    assert len({derived, creation_id(bytes(8), "t", 5, None), creation_id(b"1" * 8, "t", 4, None)}) == 3
