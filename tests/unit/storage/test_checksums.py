"""Checksums of chunks: computed over parts of any size, and verified block by block."""

from random import Random

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.env.limits import READ_BLOCK_BYTES
from sarit.storage.checksums import ChecksumBuilder, ChunkChecksums, DamagedChunk, checksums_of
from sarit.storage.limits import CHECKSUM_BLOCK_BYTES, CHECKSUM_JOIN_BYTES
from tests.limits import examples

BLOCK = 1 << 15


def plain(data: bytes, size: int) -> ChunkChecksums:
    """The same by definition."""
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    return ChunkChecksums(len(data), size, b"".join(crc32c(block).to_bytes(4, "big") for block in blocks))


SIZES = [0, 1, 700, CHECKSUM_JOIN_BYTES - 1, CHECKSUM_JOIN_BYTES, BLOCK, 3 * BLOCK + 5]


@settings(max_examples=examples(60))
@given(st.lists(st.lists(st.sampled_from(SIZES), max_size=8), max_size=5), st.integers(0, 1000))
def test_checksums_do_not_depend_on_how_a_chunk_is_cut_into_parts(calls, seed):
    random = Random(seed)
    builder, whole = ChecksumBuilder(BLOCK), b""
    for sizes in calls:
        parts = [random.randbytes(size) for size in sizes]
        whole += b"".join(parts)
        builder.add([memoryview(part) if len(part) % 2 else part for part in parts])
    assert builder.finish() == plain(whole, BLOCK)


def test_read_of_a_chunk_is_of_whole_blocks():
    assert READ_BLOCK_BYTES % CHECKSUM_BLOCK_BYTES == 0
    checksums = ChunkChecksums(2 * BLOCK + 10, BLOCK, b"")
    assert checksums.blocks_of(0, 1) == (0, BLOCK)
    assert checksums.blocks_of(BLOCK - 1, 2) == (0, 2 * BLOCK)
    assert checksums.blocks_of(BLOCK, BLOCK) == (BLOCK, 2 * BLOCK)
    assert checksums.blocks_of(2 * BLOCK + 9, 1) == (2 * BLOCK, 2 * BLOCK + 10)


@pytest.mark.parametrize("at", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 9])
@pytest.mark.parametrize("bit", [0, 7])
def test_flipped_bit_is_found_with_its_block(at, bit):
    data = bytearray(b"sarit" * BLOCK)[: 2 * BLOCK + 10]
    checksums = checksums_of([data])
    assert checksums.block_bytes == CHECKSUM_BLOCK_BYTES
    checksums = checksums_of([data], BLOCK)
    checksums.verify("c", 0, data)
    data[at] ^= 1 << bit
    with pytest.raises(DamagedChunk) as found:
        checksums.verify("c", 0, data)
    assert (found.value.chunk, found.value.offset, found.value.missing) == ("c", at // BLOCK * BLOCK, False)
    # Blocks that are whole pass, wherever the read began.
    for begin in range(0, len(data), BLOCK):
        if begin != found.value.offset:
            checksums.verify("c", begin, data[begin : begin + BLOCK])


def test_block_of_another_place_is_found():
    data = b"a" * BLOCK + b"b" * BLOCK
    with pytest.raises(DamagedChunk):
        checksums_of([data], BLOCK).verify("c", 0, data[BLOCK:])
