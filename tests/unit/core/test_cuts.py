"""Stream cuts against the bytes and the text of the Java client, and invalid stream cuts."""

import base64
import gzip
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.cuts import MAX_CUT_TEXT_BYTES, StreamCut, from_bytes, from_text, read_cut, to_bytes, to_text
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.core.versioned_objects import Cursor

STREAM = StreamName("s", "t")
CUT = StreamCut(STREAM, {SegmentId(1, 3): 300_000, SegmentId(0, 0): 10})

# vectors.md, made by the Java client 0.13.0
GOLDEN_BYTES = bytes.fromhex("00010100000000140003732f7402000ac000000100000003400493e0")
GOLDEN_TEXT = "H4sIAAAAAAAA/zOwKtYvsTLQMQZiQytDIMMABADMZRMZFwAAAA=="
GOLDEN_CHECKPOINT = "000001000000002600026370010003732f7400010100000000140003732f7402c000000100000003400493e0000a"

segments = st.builds(SegmentId, st.integers(0, (1 << 30) - 1), st.integers(0, (1 << 31) - 1))
names = st.text("abc019.-", min_size=1, max_size=9)
offsets = st.integers(0, (1 << 61) - 1) | st.integers(0, 300)
cuts = st.builds(
    StreamCut, st.builds(StreamName, names, names), st.dictionaries(segments, offsets, min_size=1, max_size=9)
)


def _text(plain):
    return base64.b64encode(gzip.compress(plain.encode(), mtime=0)).decode()


def test_golden_bytes():
    assert to_bytes(CUT) == GOLDEN_BYTES
    assert from_bytes(GOLDEN_BYTES) == CUT


def test_golden_text():
    assert to_text(CUT) == str(CUT) == GOLDEN_TEXT
    assert from_text(GOLDEN_TEXT) == CUT


def test_a_cut_inside_a_checkpoint():
    version, revisions = Cursor(bytes.fromhex(GOLDEN_CHECKPOINT)).single()
    cursor = Cursor(revisions[0])
    assert (version, cursor.text(), cursor.compact_int(), cursor.text()) == (0, "cp", 1, "s/t")
    assert read_cut(cursor) == CUT
    assert cursor.at_end


def test_unbounded():
    assert to_bytes(None) == b""
    assert from_bytes(b"") is None
    assert to_text(None) == "UNBOUNDED"
    assert from_text("UNBOUNDED") is None


@given(cuts)
def test_any_cut_comes_back(cut):
    assert from_bytes(to_bytes(cut)) == cut
    assert from_text(to_text(cut)) == cut
    assert pickle.loads(pickle.dumps(cut)) == cut
    assert gzip.decompress(base64.b64decode(to_text(cut))).decode().startswith(f"0:{cut.stream}:")


def test_cuts_are_values():
    same = StreamCut(STREAM, {SegmentId(0, 0): 10, SegmentId(1, 3): 300_000})
    assert {CUT: 1}[same] == 1
    assert list(same.positions) == list(CUT.positions) == [SegmentId(0, 0), SegmentId(1, 3)]
    with pytest.raises(TypeError):
        CUT.positions[SegmentId(0, 0)] = 11  # type: ignore[index]


def test_version_0_has_unsigned_offsets():
    old = bytes.fromhex("000001" + "00" + "0000000e" + "0003732f74" + "01" + "00" + "8000002a" + "000000")
    assert from_bytes(old[:3] + b"\0" + (11).to_bytes(4, "big") + old[8:19]) == StreamCut(STREAM, {SegmentId(0, 0): 42})


def test_revisions_of_a_newer_java_are_skipped():
    newer = bytearray(GOLDEN_BYTES + bytes.fromhex("0100000003aabbcc"))
    newer[2] = 2
    assert from_bytes(bytes(newer)) == CUT


@pytest.mark.parametrize("length", range(1, len(GOLDEN_BYTES)))
def test_cut_short_at_every_byte(length):
    with pytest.raises(Invalid):
        from_bytes(GOLDEN_BYTES[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"\1" + GOLDEN_BYTES[1:],
        GOLDEN_BYTES[:1] + b"\2" + GOLDEN_BYTES[2:],
        GOLDEN_BYTES + b"x",
        GOLDEN_BYTES.replace(b"s/t", b"s-t"),
        GOLDEN_BYTES.replace(b"s/t", b"s/\xff"),
        GOLDEN_BYTES.replace(bytes.fromhex("02000a"), bytes.fromhex("020085")),
        GOLDEN_BYTES[:2] + b"\0",
        bytes.fromhex("0001010000000006" + "0003732f74" + "00"),
    ],
)
def test_invalid_cut_bytes_are_refused(data):
    with pytest.raises(Invalid):
        from_bytes(data)


@given(st.binary(max_size=60))
def test_random_bytes_are_harmless(data):
    try:
        from_bytes(data)
    except Invalid:
        return


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "AAAA", GOLDEN_TEXT[:-8], GOLDEN_TEXT[:20], "é",
        base64.b64encode(b"0:s/t:0:0:0").decode(),
        _text("1:s/t:0:0:0"), _text("0:s/t:0:0"), _text("0:s/t:0,1:0:0"), _text("0:s/t:::"), _text("0:s/t:-1:0:0"),
        _text("0:s/t:0:0:x"), _text("0:s/t:0,0:0,0:1,2"), _text("0:nostream:0:0:0"), _text("0:/t:0:0:0"),
        _text("0:s/t:4294967296:0:0"), _text("0:s/t:0:0:" + "9" * 30), _text("0:s/t:0:0:²"), _text("0:s/t:0:0:0:0"),
    ],
)  # fmt: skip
def test_invalid_cut_text_is_refused(text):
    with pytest.raises(Invalid):
        from_text(text)


def test_a_small_text_cannot_fill_memory():
    bomb = base64.b64encode(gzip.compress(b"0" * (MAX_CUT_TEXT_BYTES + 1))).decode()
    with pytest.raises(Invalid, match="too long"):
        from_text(bomb)


@pytest.mark.parametrize("positions", [{}, {SegmentId(0, 0): -1}])
def test_invalid_cuts_are_refused(positions):
    with pytest.raises(Invalid):
        StreamCut(STREAM, positions)


def test_segment_as_text_is_the_end_of_its_name() -> None:
    segment = SegmentId(3, 1)
    assert str(segment) == "1.#epoch.3"
    assert StreamName("s", "t").segment(segment) == f"s/t/{segment}"
