"""Envelopes: golden bytes, one at a time and whole columns, plain events, newer versions, damage."""

import datetime
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.envelope import Envelope
from sarit.core.envelope_columns import COLUMNS, decode, encode
from sarit.core.errors import Corrupt, Invalid
from tests.limits import examples

PAGE = Path(__file__).parents[3] / "docs/formats/envelope.md"
FULL = Envelope("21.5", key="ann", event_time=1_767_225_600_000_000, headers=[("source", b"north"), ("n", b"")])
GOLDEN = {
    "f5534501 0000 00 00 0000000000000000 00000000 00000000 6869": Envelope(b"hi"),
    "f5534501 0002 03 00 0006474846204000 00000003 0000001c 616e6e 00000006 00000005 00000001 00000000 "
    "736f75726365 6e6f727468 6e 32312e35": FULL,
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
times = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
envelopes = st.builds(
    Envelope, st.binary(max_size=20), key=st.none() | texts, event_time=times,
    headers=st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=4),
)  # fmt: skip


def columns(made):
    rows = [[{"key": name, "value": value} for name, value in one.headers] for one in made]
    return {
        "key": pa.array([one.key for one in made], pa.string()),
        "event_time": pa.array([one.event_time for one in made], pa.int64()),
        "headers": pa.array(rows, COLUMNS["headers"]),
        "payload": pa.array([one.payload for one in made], pa.binary()),
    }


def batch(events):
    return {name: array for name, array in decode(events).columns.items()}


def test_golden_bytes():
    for text, envelope in GOLDEN.items():
        assert bytes(envelope) == bytes.fromhex(text)
        assert Envelope.parse(bytes.fromhex(text)) == envelope


def test_golden_bytes_are_those_of_the_page():
    page = re.sub(r"\s+", " ", PAGE.read_text())
    for text in GOLDEN:
        assert text in page


@given(envelopes)
def test_parse_inverts_bytes(envelope):
    assert Envelope.parse(bytes(envelope)) == envelope


@given(st.lists(envelopes, max_size=6), st.integers(0, 3))
def test_columns_have_the_bytes_of_single_envelopes(made, skipped):
    events = [bytes(one) for one in made]
    wanted = columns(made)
    encoded = encode(wanted["payload"], wanted["key"], wanted["event_time"], wanted["headers"])
    assert encoded.to_pylist() == events
    sliced = pa.array(events, pa.binary())[skipped:]
    found = decode(sliced)
    assert not found.bad.any()
    for name, array in found.columns.items():
        array = array.cast(pa.int64()) if name == "event_time" else array
        assert array.equals(wanted[name][skipped:]), name
    again = encode(*(found.columns[name] for name in ("payload", "key", "event_time", "headers")))
    assert again.to_pylist() == events[skipped:]


@st.composite
def nearly(draw):
    """An envelope with some bytes changed, cut off or added."""
    data = bytearray(bytes(draw(envelopes)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.integers(0, 3))
        if how == 0:
            del data[at:]
        elif how == 1:
            data[at : at + 1] = bytes([draw(st.sampled_from([0, 1, 2, 3, 8, 255]))])
        elif how == 2:
            data[at:at] = draw(st.binary(max_size=4))
        else:
            data[at : at + 4] = draw(st.sampled_from([b"\xff" * 4, b"\0\0\0\1", b"\0" * 4]))
    return bytes(data)


@given(st.lists(nearly() | st.binary(max_size=40), max_size=6))
@settings(max_examples=examples(300))
def test_both_decoders_refuse_the_same_events(events):
    found = decode(pa.array(events, pa.binary()))
    for at, event in enumerate(events):
        try:
            envelope = Envelope.parse(event)
        except (Corrupt, Invalid):
            assert found.bad[at], event
            assert all(column[at].as_py() is None for column in found.columns.values())
        else:
            assert not found.bad[at], event
            assert found.columns["payload"][at].as_py() == envelope.payload
            assert found.columns["key"][at].as_py() == envelope.key
            pairs = [(one["key"], one["value"]) for one in found.columns["headers"][at].as_py()]
            assert tuple(pairs) == envelope.headers


def test_decode_gives_only_the_wanted_columns():
    events = [bytes(FULL)] * 3
    assert list(decode(events, {"payload"}).columns) == ["payload"]
    assert list(decode([], {"key", "payload"}).columns) == ["key", "payload"]
    assert Envelope.parse_many(events).column("key").to_pylist() == ["ann"] * 3


def test_plain_event_is_no_envelope():
    for plain in (b"", b"hello", b'{"a": 1}', "\U0010ffff".encode(), b"\xf5", b"\xf5SX"):
        assert not Envelope.is_envelope(plain)
        with pytest.raises(Invalid, match="has no envelope"):
            Envelope.parse(plain)
    assert Envelope.is_envelope(bytes(FULL))


def test_newer_version_is_refused_with_both_versions():
    newer = bytearray(bytes(FULL))
    newer[3] = 2
    with pytest.raises(Invalid, match="version 2; this Sarit knows 1"):
        Envelope.parse(bytes(newer))
    with pytest.raises(Invalid, match="version 2"):
        Envelope.parse_many([bytes(FULL), bytes(newer)])


@pytest.mark.parametrize(
    ("at", "change", "named"),
    [
        (6, b"\x04", "at byte 6: flags"),
        (6, b"\x01", "at byte 8: a time"),
        (6, b"\x02", "at byte 16: a key"),
        (7, b"\x01", "at byte 6"),
        (16, b"\xff", "at byte 16: a key of 4278190083 bytes"),
        (20, b"\xff", "at byte 20: 2 headers"),
        (23, b"\x0f", "at byte 20: 2 headers of 15 bytes"),
        (24, b"\xff", "at byte 24: the key is not UTF-8"),
        (27, b"\x01", "at byte 27: header 0 is longer"),
        (30, b"\x05", "at byte 54: 1 bytes after the last header"),
        (43, b"\xff", "at byte 43: the name of header 0 is not UTF-8"),
    ],
)
def test_damage_is_named_with_its_place(at, change, named):
    event = bytearray(bytes(FULL))
    event[at : at + len(change)] = change
    for parse in (Envelope.parse, lambda event: Envelope.parse_many([event])):
        with pytest.raises(Corrupt, match=re.escape(named)):
            parse(bytes(event))


def test_cut_off_envelope_is_damaged():
    event = bytes(FULL)
    for end in range(4, len(event) - 4):
        with pytest.raises(Corrupt):
            Envelope.parse(event[:end])
        assert decode([event[:end]]).bad.all()


def test_event_time_takes_a_datetime_exactly():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    when = datetime.datetime(2026, 1, 1, 2, 0, 0, 123_457, tzinfo=zone)
    assert Envelope(b"", event_time=when).event_time == 1_767_225_600_123_457
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)
    assert Envelope(b"", event_time=before).event_time == -1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"payload": 5}, "payload of an envelope is bytes or str, not int"),
        ({"payload": "\ud800"}, "valid Unicode"),
        ({"key": b"k"}, "key of an envelope is a str, not bytes"),
        ({"key": "\ud800"}, "valid Unicode"),
        ({"event_time": 1.5}, "microseconds since 1970 as an int"),
        ({"event_time": True}, "microseconds since 1970 as an int"),
        ({"event_time": 1 << 63}, "64 bits"),
        ({"event_time": datetime.datetime(2026, 1, 1)}, "no time zone"),
        ({"headers": 5}, "pairs of a name and bytes"),
        ({"headers": [1]}, "pairs of a name and bytes"),
        ({"headers": [(b"n", b"v")]}, "name of a header is a str"),
        ({"headers": {"n": 1}}, "header 'n' of an envelope is bytes or str"),
        ({"headers": [("n", b"")] * 65_536}, "at most 65535"),
    ],
)
def test_wrong_argument_is_refused(arguments, named):
    with pytest.raises(Invalid, match=re.escape(named)):
        Envelope(**({"payload": b""} | arguments))


def test_headers_may_be_a_mapping():
    assert Envelope(b"", headers={"a": "x", "b": b"y"}).headers == (("a", b"x"), ("b", b"y"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"payloads": [b"a", None]}, "1 of 2 payloads are null"),
        ({"payloads": pa.array([1])}, "give binary or string"),
        ({"payloads": b"a"}, "a list or an Arrow array"),
        ({"payloads": [b"a"], "keys": ["a", "b"]}, "1 payloads and 2 keys"),
        ({"payloads": [b"a"], "keys": pa.array([b"\xff"])}, "keys of type binary"),
        ({"payloads": [b"a"], "event_times": ["now"]}, "a column of an envelope"),
        ({"payloads": [b"a"], "headers": pa.array([["a"]])}, "headers of type list"),
        ({"payloads": [b"a"], "headers": [[{"key": None, "value": b""}]]}, "without a name or a value"),
    ],
)
def test_wrong_columns_are_refused(arguments, named):
    with pytest.raises(Invalid, match=named):
        Envelope.encode_many(**arguments)


def test_columns_take_what_arrow_users_have():
    times = pa.array([1_000, None], pa.timestamp("ms", tz="Europe/Berlin"))
    headers = pa.array([[("n", b"v")], None], pa.map_(pa.string(), pa.binary()))
    structs = pa.array(
        [[{"name": "n", "val": "v"}], []], pa.list_(pa.struct([("name", pa.string()), ("val", pa.string())]))
    )
    expected = [bytes(Envelope("a", key="k", event_time=1_000_000, headers={"n": b"v"})), bytes(Envelope("b"))]
    for given_headers in (structs, headers):
        events = Envelope.encode_many(
            pa.chunked_array([["a"], ["b"]]), keys=pa.array(["k", None]).dictionary_encode(), event_times=times,
            headers=given_headers,
        )  # fmt: skip
        assert events.to_pylist() == expected
    rest = Envelope.encode_many(["b"], headers=headers[1:])
    assert rest.to_pylist() == expected[1:]


def test_large_columns_are_decoded_without_a_loop_over_events():
    count = 50_000
    payloads = pa.array(np.arange(count)).cast(pa.string()).cast(pa.binary())
    events = encode(payloads, pa.array(np.arange(count) % 7).cast(pa.string()))
    found = decode(events)
    assert found.columns["payload"].equals(payloads)
    assert set(found.columns["key"].to_pylist()) == set("0123456")
