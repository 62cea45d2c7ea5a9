"""The bytes between a client and a bookie: the examples of docs/formats/bookkeeper.md, every cut, and damage."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Invalid
from sarit.log.bookkeeper.digest import EntryDigest, master_key
from sarit.log.bookkeeper.limits import BOOKKEEPER_MAX_FRAME_BYTES, BOOKKEEPER_RECEIVE_WINDOW_BYTES
from sarit.log.bookkeeper.metadata import DigestType
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.wire import (
    ADD,
    READ,
    Response,
    ResponseReader,
    add_packet,
    parse_entry,
    read_request,
)
from sarit.wire.errors import ProtocolError
from sarit.wire.frames import Window

HEAD = struct.Struct(">IIiqq")


def golden(name: str) -> bytes:
    page = (Path(__file__).parents[4] / "docs/formats/bookkeeper.md").read_text()
    found = re.search(rf"^    {name} +((?:[0-9a-f ]|\n           )+)", page, re.MULTILINE)
    assert found
    return bytes.fromhex(found[1])


def response(operation: int, status: int, ledger: int, entry: int, body: bytes = b"") -> bytes:
    return HEAD.pack(24 + len(body), 2 << 24 | operation << 16, status, ledger, entry) + body


def stored(ledger: int, entry: int, payload: bytes, digest: EntryDigest | None = None) -> bytes:
    arguments = {"digest": digest} if digest else {}
    packet = add_packet(ledger, entry, entry - 1, len(payload), [payload], recovery=False, **arguments)
    return b"".join(packet.parts)[28:]


def feed(reader: ResponseReader, data: bytes, sizes=None) -> list[Response]:
    """What the reader makes of `data`, which comes in reads of at most those sizes."""
    found: list[Response] = []
    rest = memoryview(data)
    sizes = iter(sizes or ())
    while rest:
        buffer = reader.get_buffer(-1)
        assert len(buffer) > 0
        count = min(len(buffer), len(rest), next(sizes, len(rest)))
        buffer[:count] = rest[:count]
        rest = rest[count:]
        found += reader.received(count)
    return found


def test_an_add_is_the_documented_example():
    packet = add_packet(7, 3, 1, 11, [b"hel", b"lo"], recovery=True)
    assert b"".join(packet.parts) == golden("add")
    assert packet.size == len(golden("add"))


def test_a_fencing_read_is_the_documented_example():
    assert read_request(7, -1, fence=True) == golden("read")


def test_a_read_without_fence_has_neither_flag_nor_key():
    assert read_request(7, 3, fence=False) == struct.pack(">IIqq", 20, 0x02020000, 7, 3)


def test_the_documented_answer_is_read():
    (found,) = feed(ResponseReader(), golden("answer"))
    assert (found.operation, found.code, found.ledger, found.entry) == (READ, Code.OK, 7, 3)
    entry = parse_entry(found.body, 7, 3)
    assert (entry.entry, entry.last_add_confirmed, entry.length, entry.payload) == (3, 1, 11, b"hello")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (0, Code.OK), (1, Code.NO_LEDGER), (2, Code.NO_ENTRY), (100, Code.FAILED), (101, Code.FAILED),
        (102, Code.UNAUTHORIZED), (103, Code.FAILED), (104, Code.FENCED), (105, Code.READ_ONLY),
        (106, Code.TOO_MANY_REQUESTS), (107, Code.FAILED), (-1, Code.FAILED),
    ],
)  # fmt: skip
def test_statuses_have_the_documented_meaning(status, code):
    (found,) = feed(ResponseReader(), response(ADD, status, 7, 3))
    assert (found.operation, found.code, found.status, found.body) == (ADD, code, status, b"")


@pytest.mark.parametrize("kind", DigestType)
def test_each_digest_protects_header_and_payload(kind):
    digest = EntryDigest(kind, b"secret")
    body = stored(7, 3, b"hello", digest)
    assert len(body) == 32 + digest.length + 5
    assert bytes(parse_entry(body, 7, 3, digest).payload) == b"hello"
    if kind is DigestType.DUMMY:
        return
    for at in range(len(body)):
        damaged = bytearray(body)
        damaged[at] ^= 1
        with pytest.raises(Corrupt, match="entry 3 of ledger 7"):
            parse_entry(damaged, 7, 3, digest)


def test_hmac_depends_on_the_password():
    body = stored(7, 3, b"hello", EntryDigest(DigestType.HMAC, b"a"))
    with pytest.raises(Corrupt, match="digest is wrong"):
        parse_entry(body, 7, 3, EntryDigest(DigestType.HMAC, b"b"))


def test_the_master_key_is_the_hash_of_the_password():
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert master_key(b"x") != master_key(b"")


@pytest.mark.parametrize(("ledger", "entry"), [(8, 3), (7, 4)])
def test_another_entry_than_requested_is_refused(ledger, entry):
    with pytest.raises(Corrupt, match="the bookie sent 3 of 7"):
        parse_entry(stored(7, 3, b"hello"), ledger, entry)


def test_the_last_entry_may_be_any():
    assert parse_entry(stored(7, 3, b"hello"), 7, -1).entry == 3


@pytest.mark.parametrize(("confirmed", "length"), [(3, 5), (-2, 5), (2, 4)])
def test_impossible_headers_are_refused(confirmed, length):
    packet = add_packet(7, 3, confirmed, length, [b"hello"], recovery=False)
    with pytest.raises(Corrupt, match="impossible"):
        parse_entry(b"".join(packet.parts)[28:], 7, 3)


def test_an_entry_that_ends_early_is_refused():
    body = stored(7, 3, b"hello")
    for end in range(len(body)):
        with pytest.raises(Corrupt):
            parse_entry(body[:end], 7, 3)


def test_an_entry_larger_than_a_frame_is_refused():
    most = BOOKKEEPER_MAX_FRAME_BYTES - 4 - 20 - 32 - 4
    assert add_packet(7, 3, 1, most, [bytes(most)], recovery=False).size == BOOKKEEPER_MAX_FRAME_BYTES + 4
    with pytest.raises(Invalid, match="split it"):
        add_packet(7, 3, 1, most + 1, [bytes(most + 1)], recovery=False)


def test_large_parts_of_a_payload_are_not_copied_and_small_ones_are_joined():
    large = bytes(100_000)
    parts = add_packet(7, 3, 1, 100_004, [b"a", b"b", large, b"c", b"d"], recovery=False).parts
    assert len(parts) == 3
    assert parts[1] is large
    assert parts[0].endswith(b"ab")
    assert parts[2] == b"cd"


@st.composite
def responses(draw):
    """Responses, small and large, and the sizes of the reads that bring them."""
    made = []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.sampled_from([None, 0, 1, 100, 16_000, 16_384, 70_000, BOOKKEEPER_RECEIVE_WINDOW_BYTES]))
        entry = draw(st.integers(0, 1 << 62))
        body = b"" if size is None else stored(5, entry, draw(st.binary(min_size=1, max_size=1)) * size)
        made.append((READ if body else ADD, entry, body))
    sizes = draw(st.lists(st.sampled_from([1, 3, 4, 27, 28, 29, 1000, 16_384, 65_536, 1 << 20]), max_size=60))
    return made, sizes


@given(responses())
def test_responses_are_the_same_however_the_bytes_are_cut(made_and_sizes):
    made, sizes = made_and_sizes
    data = b"".join(response(operation, 0, 5, entry, body) for operation, entry, body in made)
    found = feed(ResponseReader(), data, sizes)
    assert [(each.operation, each.entry, bytes(each.body)) for each in found] == made


@given(responses(), responses())
def test_readers_that_share_a_window_do_not_mix(one, other):
    window = Window()
    readers = [ResponseReader(window), ResponseReader(window)]
    found: list[list[Response]] = [[], []]
    rests = []
    for made, _ in (one, other):
        rests.append(memoryview(b"".join(response(kind, 0, 5, entry, body) for kind, entry, body in made)))
    sizes = iter([*one[1], *other[1]])
    turn = 0
    while any(rests):
        turn ^= 1
        buffer = readers[turn].get_buffer(-1)
        count = min(len(buffer), len(rests[turn]), next(sizes, 1 << 20))
        if count:
            buffer[:count] = rests[turn][:count]
            rests[turn] = rests[turn][count:]
            found[turn] += readers[turn].received(count)
    for (made, _), each in zip((one, other), found, strict=True):
        assert [(item.operation, item.entry, bytes(item.body)) for item in each] == made


def test_a_large_body_is_received_without_a_copy():
    body = stored(5, 1, bytes(1 << 20))
    reader = ResponseReader()
    (found,) = feed(reader, response(READ, 0, 5, 1, body), [1000])
    assert isinstance(found.body, memoryview)
    assert found.body.readonly
    feed(reader, response(READ, 0, 5, 2, stored(5, 2, b"\xff" * (1 << 20))))
    assert bytes(found.body) == body


@pytest.mark.parametrize("length", [0, 23, BOOKKEEPER_MAX_FRAME_BYTES + 1, 0xFFFF_FFFF])
def test_a_length_out_of_bounds_ends_the_connection(length):
    reader = ResponseReader()
    with pytest.raises(ProtocolError, match=f"claims {length} bytes"):
        feed(reader, length.to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match="an earlier frame"):
        feed(reader, response(ADD, 0, 1, 1))


@pytest.mark.parametrize("header", [0x01010000, 0x03010000, 0x02030000, 0x02000000, 0x02070000])
def test_a_response_of_another_version_or_operation_ends_the_connection(header):
    with pytest.raises(ProtocolError, match="with the header"):
        feed(ResponseReader(), HEAD.pack(24, header, 0, 1, 1))
