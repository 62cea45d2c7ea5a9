"""The bytes of what is known of streams that take part in links: round trips, golden bytes, damage."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.model.codec import drops_of_mirror
from sarit.controller.model.epochs import first_epoch
from sarit.core.errors import Corrupt
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType
from sarit.mirror.mirror_records import MirrorRecord, decode_mirror, encode_mirror
from sarit.mirror.values import Lineage, LinkIdentity, Round
from tests.unit.controller.model.histories import histories

NAME = StreamName("s", "t")
ids = st.just(b"") | st.binary(min_size=16, max_size=16)
texts = st.text("abc.-0ä", max_size=8)
offsets = st.integers(0, (1 << 62) - 1)
cuts = st.dictionaries(offsets, offsets, max_size=3)
lineages = st.builds(Lineage, ids, st.integers(0, 1 << 29), texts, cuts)
rounds = st.builds(
    Round, st.just(NAME), cuts, cuts, st.frozensets(offsets, max_size=3), histories(4), st.booleans(), cuts
)
policies = st.builds(RetentionPolicy, st.sampled_from(RetentionType), offsets, offsets)
records = st.builds(
    MirrorRecord,
    st.builds(LinkIdentity, ids, texts, texts),
    st.lists(texts, max_size=3).map(tuple),
    st.lists(lineages, max_size=2).map(tuple),
    offsets,
    policies,
    st.none() | rounds,
    st.none() | lineages,
    offsets,
    ids,
    cuts,
    cuts,
)


@given(records)
def test_record_of_a_mirror_comes_back_as_it_was(record):
    stored = encode_mirror(record)
    assert decode_mirror(NAME, stored) == record
    assert encode_mirror(decode_mirror(NAME, stored)) == stored


@given(records, st.data())
def test_damage_is_reported(record, data):
    stored = encode_mirror(record)
    for bad in (b"", b"\x03" + stored[1:], stored + b"\0", stored[: data.draw(st.integers(0, len(stored) - 1))]):
        with pytest.raises(Corrupt):
            decode_mirror(NAME, bad)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_corrupt(noise):
    with contextlib.suppress(Corrupt):
        decode_mirror(NAME, b"\x01" + noise)


def test_record_of_a_mirror_has_the_bytes_of_its_page():
    link = LinkIdentity(bytes(range(16)), "up", "ab")
    decided = Round(NAME, {0: 4}, {0: 9}, frozenset({0}), (first_epoch(1, 0, 5),))
    record = MirrorRecord(link, ("e",), (), 7, RetentionPolicy(), decided, None, 0, b"")
    data = bytes.fromhex(
        "01 10 000102030405060708090a0b0c0d0e0f 0002 7570 0002 6162"
        "01 0001 65  00  07  00 0000000000000000 0000000000000000"
        "01  01 0000000000000000 0000000000000004  01 0000000000000000 0000000000000009  01 00"
        "0f 02 01 00 05 00 01 00 0000000000000000"
        "00 00  00 00 00 00"
    )
    assert encode_mirror(record).hex() == data.hex()
    assert decode_mirror(NAME, data) == record
    assert drops_of_mirror(data) == {}
    dropped = bytes.fromhex("02 01 0000000000000000 0000000000000003") + data[1:]
    assert decode_mirror(NAME, dropped) == replace(record, drops={0: 3})
    assert encode_mirror(replace(record, drops={0: 3})) == dropped
    assert drops_of_mirror(dropped) == {0: 3}
