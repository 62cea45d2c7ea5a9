"""What a node makes of its long-term storage when it starts."""

import asyncio
from types import SimpleNamespace

import pytest

from sarit.config import NodeConfig
from sarit.core.errors import Invalid, Unavailable
from sarit.env.real import real_env
from sarit.standalone import STORAGE_MARKED, Claimed, claim_chunks, claim_directory
from sarit.storage.memory import MemoryChunks


class Away(MemoryChunks):
    """Nothing answers."""

    async def read(self, name, offset, length):
        raise Unavailable("no route to host")


def start(directory, storage, url="s3://bucket/prefix") -> Claimed:
    config = NodeConfig(str(directory), storage_url=url)
    claimed = claim_directory(config, real_env())
    try:
        asyncio.run(claim_chunks(SimpleNamespace(config=config, env=real_env(), storage=storage), claimed))
    finally:
        claimed.lock.close()
    return claimed


def test_storage_that_is_away_keeps_a_node_from_its_first_start_alone(tmp_path, caplog):
    for _ in range(2):
        with pytest.raises(Unavailable):
            start(tmp_path, Away())
    assert not (tmp_path / STORAGE_MARKED).exists()
    storage = MemoryChunks()
    first = start(tmp_path, storage)
    assert (tmp_path / STORAGE_MARKED).exists()
    assert start(tmp_path, Away()).node == first.node
    assert "long-term storage is away" in caplog.text
    start(tmp_path, storage)
    with pytest.raises(Invalid, match="is it mounted"):
        start(tmp_path, MemoryChunks())


def test_another_directory_is_refused_every_time(tmp_path):
    storage = MemoryChunks()
    start(tmp_path / "one", storage)
    for _ in range(2):
        with pytest.raises(Invalid, match="belongs to the node"):
            start(tmp_path / "two", storage)


def test_chunks_in_memory_are_anew_every_time(tmp_path):
    for _ in range(2):
        start(tmp_path, MemoryChunks(), "memory://")
