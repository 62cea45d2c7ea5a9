"""The bytes of the durable log: the example of docs/formats/durable-log.md, and every way to damage it."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Invalid
from sarit.log.limits import LOG_BLOCK_BYTES, MAX_FRAME_BYTES
from sarit.log.records import (
    FRAME,
    HEADER_BYTES,
    HEADER_COPY_AT,
    WATERMARK,
    FileHeader,
    GroupEncoder,
    Record,
    Window,
    claimed_number,
    extend_crc,
)

HEADER = FileHeader(
    container=3, sequence=5, epoch=2, base=6, durable=7, salt=bytes(range(12)), identity=bytes(range(16, 32))
)


def group(*records: tuple[int, bytes], position: int = LOG_BLOCK_BYTES, header: FileHeader = HEADER) -> bytes:
    writer = GroupEncoder(header, position)
    for number, payload in records:
        writer.add(FRAME, 2, number, number - 1, [payload])
    length = writer.finish()
    data = b"".join(writer.parts)
    assert len(data) == length
    return data


def window(data: bytes, position: int = LOG_BLOCK_BYTES, header: FileHeader = HEADER) -> Window:
    return Window(data, position, header.tag, header.crc, header.epoch)


def documented_bytes() -> dict[int, bytes]:
    page = Path(__file__).parents[3] / "docs/formats/durable-log.md"
    found = re.findall(r"^    ([0-9a-f]{4})  ((?:[0-9a-f]{2} ){7,15}[0-9a-f]{2})  ", page.read_text(), re.MULTILINE)
    return {int(at, 16): bytes.fromhex(line) for at, line in found}


def test_documented_example_is_encoded() -> None:
    data = HEADER.block() + group((8, b"hello"))
    lines = documented_bytes()
    assert sorted(lines) == [0x00, 0x10, 0x20, 0x30, 0x40, 0x1000, 0x1010, 0x1020, 0x1030]
    for at, line in lines.items():
        assert data[at : at + len(line)] == line, hex(at)
    assert len(data) == 0x2000
    assert data[HEADER_COPY_AT : HEADER_COPY_AT + HEADER_BYTES] == data[:HEADER_BYTES]
    assert not any(data[HEADER_BYTES:HEADER_COPY_AT] + data[HEADER_COPY_AT + HEADER_BYTES : LOG_BLOCK_BYTES])
    assert not any(data[0x1038:])


def test_crc32c_uses_castagnoli_polynomial() -> None:
    assert extend_crc(0, b"123456789") == 0xE3069283
    assert extend_crc(extend_crc(0, bytearray(b"1234")), memoryview(b"56789")) == 0xE3069283
    large = bytes(range(256)) * 8192
    assert extend_crc(0, large) == extend_crc(extend_crc(0, large[:1000]), memoryview(large)[1000:])


def test_header_with_any_flipped_bit_is_read_from_its_copy() -> None:
    block = HEADER.block()
    assert FileHeader.parse(block, "x") == HEADER
    for at in (0, HEADER_COPY_AT):
        for bit in range(HEADER_BYTES * 8):
            damaged = bytearray(block)
            damaged[at + bit // 8] ^= 1 << bit % 8
            assert FileHeader.parse(bytes(damaged), "x") == HEADER
            damaged[HEADER_COPY_AT - at + bit // 8] ^= 1 << bit % 8
            with pytest.raises(Corrupt):
                FileHeader.parse(bytes(damaged), "x")
    with pytest.raises(Corrupt):
        FileHeader.parse(b"", "x")


def test_other_format_version_is_refused_with_both_versions() -> None:
    body = bytearray(HEADER.pack()[:-4])
    body[9] = 3
    with pytest.raises(Invalid, match="log format 3; this version of Sarit reads 2"):
        FileHeader.parse(bytes(body) + extend_crc(0, bytes(body)).to_bytes(4, "big"), "x")
    old = struct.pack(">8sHHIQQQQ12s", b"SARITLOG", 1, 0, 3, 5, 2, 6, 7, bytes(12))
    with pytest.raises(Invalid, match="log format 1; this version of Sarit reads 2"):
        FileHeader.parse((old + extend_crc(0, old).to_bytes(4, "big")).ljust(LOG_BLOCK_BYTES, b"\0"), "x")


payloads = st.lists(st.lists(st.binary(max_size=300), max_size=5), min_size=1, max_size=6)


@given(payloads)
def test_record_round_trip(groups: list[list[bytes]]) -> None:
    writer = GroupEncoder(HEADER, 3 * LOG_BLOCK_BYTES)
    for number, parts in enumerate(groups, 10):
        writer.add(FRAME, 1, number, 9, parts)
    writer.add(WATERMARK, 2, 20, 20, [])
    writer.finish()
    read = window(b"".join(writer.parts), 3 * LOG_BLOCK_BYTES)
    at = 0
    for number, parts in enumerate(groups, 10):
        record = read.record(at)
        assert isinstance(record, Record)
        assert (record.kind, record.epoch, record.number, record.durable) == (FRAME, 1, number, 9)
        assert record.payload == b"".join(parts)
        assert record.position == 3 * LOG_BLOCK_BYTES + at
        at = record.end - 3 * LOG_BLOCK_BYTES
    watermark = read.record(at)
    assert isinstance(watermark, Record)
    assert (watermark.kind, watermark.number, watermark.durable) == (WATERMARK, 20, 20)


def test_encoder_joins_small_parts_and_copies_no_large_ones() -> None:
    large = bytearray(100_000)
    writer = GroupEncoder(HEADER, LOG_BLOCK_BYTES)
    writer.add(FRAME, 2, 8, 7, [b"a" * 10] * 1000 + [memoryview(large)] + [b"b"] * 1000)
    assert any(isinstance(part, memoryview) and part.obj is large for part in writer.parts)
    assert len(writer.parts) < 10
    assert isinstance(window(b"".join(writer.parts)).record(0), Record)


def test_checksum_detects_any_flipped_bit() -> None:
    data = group((8, b"some bytes"))
    length = 48 + len(b"some bytes")
    for bit in range(length * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not isinstance(window(bytes(damaged)).record(0), Record) or 9 <= bit // 8 < 12, bit


def test_record_of_other_position_or_salt_is_invalid() -> None:
    data = group((8, b"hello"))
    assert isinstance(window(data).record(0), Record)
    assert window(data, position=2 * LOG_BLOCK_BYTES).record(0) == 0
    same_tag = FileHeader(3, 5, 2, 6, 7, bytes(range(11)) + b"!", HEADER.identity)
    assert window(data, header=same_tag).record(0) == 0
    assert window(data, header=FileHeader(3, 6, 2, 6, 7, HEADER.salt, HEADER.identity)).record(0) == 0
    older = Window(data, LOG_BLOCK_BYTES, HEADER.tag, HEADER.crc, epoch=1)
    assert older.record(0) == 0, "a record of a later epoch than the file's"


@pytest.mark.parametrize("cut", [0, 1, 47, 48, 52])
def test_incomplete_record_returns_bytes_needed(cut: int) -> None:
    data = group((8, b"hello"))
    assert window(data[:cut]).record(0) == (48 if cut < 48 else 53)


def test_damaged_record_claims_its_number_at_its_own_position_only() -> None:
    data = group((8, b"hello"))
    assert claimed_number(data[:48], LOG_BLOCK_BYTES) == 8
    assert claimed_number(data[:48], 2 * LOG_BLOCK_BYTES) == 0
    assert claimed_number(b"", LOG_BLOCK_BYTES) == 0


def test_frame_over_limit_fails_an_assertion() -> None:
    part = memoryview(bytes(MAX_FRAME_BYTES))
    GroupEncoder(HEADER, LOG_BLOCK_BYTES).add(FRAME, 2, 8, 7, [part])
    with pytest.raises(AssertionError, match="frame 8"):
        GroupEncoder(HEADER, LOG_BLOCK_BYTES).add(FRAME, 2, 8, 7, [part, b"x"])
