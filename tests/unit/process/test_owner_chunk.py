"""Chunks belong to one node, and the storage is the same at every start."""

import asyncio

import pytest

from sarit.core.errors import Invalid
from sarit.process.ownership.claims import OWNER_CHUNK, claim_owner_chunk
from sarit.storage.memory import MemoryChunks

MINE, OTHER = "1" * 32, "2" * 32


def claim(storage, node=MINE, *, written=False, new=True):
    asyncio.run(claim_owner_chunk(storage, node, 4, written=written, new=new))


def holding(*names):
    storage = MemoryChunks()
    for name in names:
        asyncio.run(storage.write(name, [b"data"]))
    return storage


def test_first_node_writes_owner_chunk_and_finds_it_again():
    storage = holding()
    claim(storage)
    claim(storage, written=True, new=False)
    claim(storage, new=False)  # it ended before it recorded that
    assert bytes(storage.chunks[OWNER_CHUNK]).decode().startswith(MINE)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("new", [False, True])
def test_another_node_is_refused(written, new):
    storage = holding()
    claim(storage)
    before = dict(storage.chunks)
    with pytest.raises(Invalid, match="belongs to the node 1111"):
        claim(storage, OTHER, written=written, new=new)
    assert storage.chunks == before


def test_new_node_refuses_storage_with_unowned_chunks():
    storage = holding("c0000/e0000000001/000000000001-s1-0")
    with pytest.raises(Invalid, match="not this node's"):
        claim(storage)
    assert OWNER_CHUNK not in storage.chunks
    claim(storage, new=False)  # a node of a release without ownership tokens


def test_foreign_names_in_storage_are_ignored():
    claim(holding("lost+found/a", "photos/b", "c0004/e0000000001/000000000001-s1-0"))


def test_storage_without_its_owner_chunk_is_refused():
    with pytest.raises(Invalid, match="is it mounted"):
        claim(holding(), written=True, new=False)


def test_damaged_owner_chunk_is_refused():
    storage = holding(OWNER_CHUNK)
    with pytest.raises(Invalid, match="damaged"):
        claim(storage)


@pytest.mark.parametrize("byte", [0, 31, 32, 39])
def test_owner_chunk_with_a_flipped_bit_is_damaged_and_not_of_another_node(byte):
    storage = holding()
    claim(storage)
    content = bytearray(storage.chunks[OWNER_CHUNK])
    content[byte] ^= 1
    storage.chunks[OWNER_CHUNK] = bytes(content)
    with pytest.raises(Invalid, match="damaged owner chunk .*: put node/owner back"):
        claim(storage, written=True, new=False)
