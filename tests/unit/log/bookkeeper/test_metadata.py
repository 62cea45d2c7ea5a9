"""Metadata of ledgers: the example of docs/formats/bookkeeper.md, protobuf's own encoder, and damage."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Invalid
from sarit.log.bookkeeper.limits import BOOKKEEPER_MAX_METADATA_BYTES
from sarit.log.bookkeeper.metadata import (
    MAGIC,
    DigestType,
    LedgerMetadata,
    LedgerState,
    decode,
    encode,
    path_of,
)

OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    state=LedgerState.OPEN,
    ensembles=((0, ("127.0.0.1:3181", "127.0.0.1:3182", "127.0.0.1:3183")),),
    created_ms=1_700_000_000_000,
    custom={"application": b"sarit"},
    ctoken=-2,
)
HEADER = MAGIC + b"3\n"


def message_class():
    """The message of BookKeeper's DataFormats.proto, built by protobuf itself."""
    file = descriptor_pb2.FileDescriptorProto(name="ledger_metadata_test.proto", package="test", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in {
        "Segment": [("member", 1, "STRING", True), ("first", 2, "INT64", False)],
        "Pair": [("key", 1, "STRING", False), ("value", 2, "BYTES", False)],
        "Metadata": [
            ("write_quorum", 1, "INT32", False), ("ensemble", 2, "INT32", False), ("length", 3, "INT64", False),
            ("last_entry", 4, "INT64", False), ("state", 5, "INT32", False), ("segment", 6, "Segment", True),
            ("digest", 7, "INT32", False), ("password", 8, "BYTES", False), ("ack_quorum", 9, "INT32", False),
            ("ctime", 10, "INT64", False), ("custom", 11, "Pair", True), ("ctoken", 12, "INT64", False),
            ("later", 40, "FIXED64", False), ("latest", 41, "STRING", False),
        ],
    }.items():  # fmt: skip
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            made = message.field.add(name=field, number=number)
            made.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in ("Segment", "Pair"):
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".test.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Metadata"))


Message = message_class()


def by_protobuf(metadata: LedgerMetadata) -> Message:
    message = Message(
        write_quorum=metadata.write_quorum, ensemble=metadata.ensemble_size, length=metadata.length,
        last_entry=metadata.last_entry, state=metadata.state.value, digest=metadata.digest.value,
        password=metadata.password, ack_quorum=metadata.ack_quorum, ctoken=metadata.ctoken,
    )  # fmt: skip
    if metadata.created_ms:
        message.ctime = metadata.created_ms
    for first, bookies in metadata.ensembles:
        message.segment.add(member=bookies, first=first)
    for key, value in metadata.custom.items():
        message.custom.add(key=key, value=value)
    return message


def stored(message: Message) -> bytes:
    body = message.SerializeToString()
    length = len(body)
    prefix = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return HEADER + prefix + body


# As the Java client of BookKeeper 4.17.3 stored them: an open ledger with the password "secret", and a closed one.
JAVA_OPEN = """
    426f6f6b69654d65746164617461466f726d617456657273696f6e09330a7508031003180020ffffffffffffffffff01280132350a0f3132372e
    302e302e313a35373834330a0f3132372e302e302e313a35363237370a0f3132372e302e302e313a343932373110003803420673656372657448
    025a130a0b6170706c69636174696f6e12046a61766160cce29ac298b3e2b043"""
JAVA_CLOSED = """
    426f6f6b69654d65746164617461466f726d617456657273696f6e09330a6408031003180a2001280332350a0f3132372e302e302e313a353632
    37370a0f3132372e302e302e313a35373834330a0f3132372e302e302e313a343932373110003803420673656372657448025a130a0b6170706c
    69636174696f6e12046a6176616000"""


numbers = st.integers(-(1 << 63), (1 << 63) - 1)
positive = st.integers(0, (1 << 63) - 1)


@st.composite
def ledgers(draw):
    sizes = sorted(draw(st.lists(st.integers(1, 5), min_size=3, max_size=3)), reverse=True)
    names = st.lists(st.text("abc.:é1", min_size=1, max_size=9), min_size=sizes[0], max_size=sizes[0], unique=True)
    firsts = [0, *sorted(draw(st.sets(st.integers(1, 1 << 62), max_size=3)))]
    return LedgerMetadata(
        *sizes,
        state=draw(st.sampled_from(LedgerState)),
        ensembles=tuple((first, tuple(draw(names))) for first in firsts),
        last_entry=draw(st.integers(-1, 1 << 62)),
        length=draw(positive),
        digest=draw(st.sampled_from(DigestType)),
        password=draw(st.binary(max_size=20)),
        created_ms=draw(positive),
        custom=draw(st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=3)),
        ctoken=draw(numbers),
    )


@given(ledgers())
def test_metadata_is_as_protobuf_encodes_it(metadata):
    data = encode(metadata)
    assert data == stored(by_protobuf(metadata))
    assert decode(data) == metadata


def test_metadata_of_the_documented_example():
    page = Path(__file__).parents[4] / "docs/formats/bookkeeper.md"
    example = re.search(r"^    426f.*?\n\n", page.read_text(), re.MULTILINE | re.DOTALL)
    assert example
    data = bytes.fromhex(example[0])
    assert decode(data) == OPEN
    assert encode(OPEN) == data


def test_metadata_of_the_java_client_is_read_and_written_to_the_byte():
    ensemble = ("127.0.0.1:57843", "127.0.0.1:56277", "127.0.0.1:49271")
    opened = LedgerMetadata(
        3, 3, 2, LedgerState.OPEN, ((0, ensemble),), password=b"secret", custom={"application": b"java"},
        ctoken=4855313165791441228,
    )  # fmt: skip
    swapped = (ensemble[1], ensemble[0], ensemble[2])
    closed = replace(
        opened, state=LedgerState.CLOSED, ensembles=((0, swapped),), last_entry=1, length=10, ctoken=0
    )  # fmt: skip
    for metadata, text in ((opened, JAVA_OPEN), (closed, JAVA_CLOSED)):
        assert decode(bytes.fromhex(text)) == metadata
        assert encode(metadata) == bytes.fromhex(text)


def test_unknown_fields_are_ignored():
    message = by_protobuf(OPEN)
    message.later, message.latest = 7, "x"
    assert decode(stored(message)) == OPEN


def test_a_missing_ack_quorum_is_the_write_quorum():
    message = by_protobuf(OPEN)
    message.ClearField("ack_quorum")
    assert decode(stored(message)).ack_quorum == 3


@pytest.mark.parametrize("field", ["write_quorum", "ensemble", "length", "state", "digest"])
def test_a_missing_field_is_refused(field):
    message = by_protobuf(OPEN)
    message.ClearField(field)
    with pytest.raises(Corrupt, match="missing"):
        decode(stored(message))


@pytest.mark.parametrize("version", [1, 2, 4])
def test_another_format_is_refused_with_its_number(version):
    with pytest.raises(Invalid, match=f"format {version}; .* reads 3"):
        decode(MAGIC + b"%d\nanything" % version)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ack_quorum": 4}, r"\(3, 3, 4\)"),
        ({"ack_quorum": 0}, r"\(3, 3, 0\)"),
        ({"ensemble_size": 257}, "257"),
        ({"ensembles": ()}, "0 ensembles"),
        ({"ensembles": ((1, OPEN.ensembles[0][1]),)}, "begins with entry 1"),
        ({"ensembles": (OPEN.ensembles[0], OPEN.ensembles[0])}, "begins with entry 0"),
        ({"ensembles": ((0, ("a", "b")),)}, "should have 3"),
        ({"ensembles": ((0, ("a", "b", "b")),)}, "should have 3"),
        ({"ensembles": ((0, ("a", "b", "")),)}, "should have 3"),
        ({"last_entry": -2}, "last entry -2"),
        ({"length": -1}, "length -1"),
        ({"custom": {f"{n}": b"" for n in range(1001)}}, "1001 custom"),
    ],
)
def test_wrong_metadata_is_neither_written_nor_read(change, message):
    wrong = replace(OPEN, **change)
    with pytest.raises(Invalid, match=message):
        encode(wrong)
    body = by_protobuf(wrong).SerializeToString()
    length = bytes([len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14])
    with pytest.raises(Corrupt, match=message):
        decode(HEADER + length + body)


def test_metadata_above_the_bound_is_refused():
    with pytest.raises(Invalid, match="the bound is"):
        encode(replace(OPEN, password=bytes(BOOKKEEPER_MAX_METADATA_BYTES)))
    with pytest.raises(Corrupt, match="the bound is"):
        decode(HEADER + bytes(BOOKKEEPER_MAX_METADATA_BYTES))


@given(st.data())
def test_damaged_metadata_is_refused_or_is_other_metadata(data):
    whole = encode(OPEN)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(damaged[: data.draw(st.integers(0, len(whole)))])
    for each in (bytes(damaged), cut):
        try:
            found = decode(each)
        except (Corrupt, Invalid):
            continue
        assert decode(encode(found)) == found


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_are_metadata(data):
    for each in (data, HEADER + data, HEADER + bytes([len(data) & 127]) + data):
        try:
            found = decode(each)
        except (Corrupt, Invalid):
            continue
        assert decode(encode(found)) == found


def test_every_cut_is_refused():
    whole = encode(OPEN)
    for end in range(len(whole)):
        with pytest.raises(Corrupt):
            decode(whole[:end])


def test_paths_are_those_of_the_long_hierarchical_layout():
    assert path_of(0) == "/ledgers/000/0000/0000/0000/L0000"
    assert path_of(12_345) == "/ledgers/000/0000/0000/0001/L2345"
    assert path_of((1 << 63) - 1, "/x") == "/x/922/3372/0368/5477/L5807"
    for wrong in (-1, 1 << 63):
        with pytest.raises(Invalid, match="no ledger id"):
            path_of(wrong)


def test_the_ensemble_of_an_entry_is_the_last_that_begins_at_or_before_it():
    metadata = replace(OPEN, ensembles=((0, ("a", "b", "c")), (5, ("a", "b", "d"))))
    assert metadata.ensemble_at(4) == ("a", "b", "c")
    assert metadata.ensemble_at(5) == ("a", "b", "d")
    assert metadata.ensemble_at(1 << 60) == ("a", "b", "d")
