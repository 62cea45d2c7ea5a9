"""A node and the volume of its data directory: refused when new and too small, smaller log files, the watch."""

import logging
from dataclasses import replace

import pytest

from sarit.core.errors import Invalid
from sarit.core.limits import MIB, REPEATED_LOG_SECONDS
from sarit.log.limits import LOG_FILE_BYTES
from sarit.process.places.volume import fit_to_volume, storage_directory
from sarit.process.settings import NodeConfig
from sarit.store.flow_control.free_space import FreeSpace, log_file_bytes
from sarit.store.limits import MIN_LOG_FILE_BYTES


class Volume:
    """Files of a volume of some size."""

    def __init__(self, size, free, present=("/", "/v")):
        self.size, self.free, self.present = size, free, present

    def exists(self, path):
        return path in self.present

    def volume_bytes(self, path):
        assert self.exists(path)
        return self.size

    def free_bytes(self, path):
        assert self.exists(path)
        return self.free


CONFIG = NodeConfig("/v/data/deep")


def test_new_node_on_a_full_volume_is_refused_with_the_figures():
    """It took 513 MB, said that it was ready, and no event could be written."""
    with pytest.raises(Invalid) as refused:
        fit_to_volume(CONFIG, Volume(100_000 * MIB, 327 * MIB))
    for figure in (
        "327 MiB free",
        "/v/data/deep",
        "needs 328 MiB",
        "8 for its first log files",
        "320 that stay free",
    ):
        assert figure in str(refused.value), refused.value
    assert "--containers" in str(refused.value)
    fit_to_volume(CONFIG, Volume(100_000 * MIB, 328 * MIB))


def test_node_with_data_starts_on_a_full_volume():
    """Its clients may delete streams: nothing else would free space."""
    volume = Volume(100_000 * MIB, 0, ("/", "/v", "/v/data", "/v/data/deep", "/v/data/deep/meta"))
    assert fit_to_volume(CONFIG, volume).limits.log_file_bytes == LOG_FILE_BYTES


@pytest.mark.parametrize(
    ("volume", "containers", "size"),
    [(64 << 30, 4, LOG_FILE_BYTES), (16 << 30, 4, LOG_FILE_BYTES), (8 << 30, 4, 32 * MIB), (1000 * MIB, 2, 4 * MIB),
     (100 * MIB, 4, MIN_LOG_FILE_BYTES), (64 << 30, 64, 16 * MIB)],
)  # fmt: skip
def test_log_files_are_smaller_on_a_small_volume(volume, containers, size):
    assert log_file_bytes(volume, containers) == size


def test_small_volume_takes_a_new_node():
    volume = Volume(1000 * MIB, 200 * MIB)
    assert fit_to_volume(replace(CONFIG, containers=2), volume).limits.log_file_bytes == 4 * MIB


def test_disk_that_is_full_is_logged_at_once_every_minute_and_at_the_end(caplog):
    """Writers waited for minutes without a word."""
    now = 100.0
    space = FreeSpace("/v/data", 320 * MIB, "appends wait", lambda: now)
    with caplog.at_level(logging.WARNING):
        assert not space.update(320 * MIB)
        now = 101.0
        assert space.update(319 * MIB)
        now = 102.0
        assert space.update(310 * MIB)
        assert len(caplog.messages) == 1
        for figure in ("/v/data", "is full", "319 MiB left", "320 MiB", "appends wait", "400 MiB"):
            assert figure in caplog.text, caplog.text
        now = 101.0 + REPEATED_LOG_SECONDS
        assert space.update(10 * MIB)
        now += 1.0
        assert space.update(10 * MIB)
        assert len(caplog.messages) == 2
        assert "still full (10 MiB left" in caplog.messages[1]
        assert "until there are 400 MiB" in caplog.messages[1]
        assert "times more" not in caplog.messages[1]
        assert not space.update(400 * MIB)
        assert "has space again (400 MiB)" in caplog.messages[2]
        assert len(caplog.messages) == 3
        assert space.update(310 * MIB)
        assert len(caplog.messages) == 4, "full again: at once"


def test_disk_at_its_reserve_does_not_flap(caplog):
    space = FreeSpace("/v/data", 320 * MIB, "appends wait", lambda: 0.0)
    with caplog.at_level(logging.WARNING):
        states = [space.update((319 if number % 2 else 330) * MIB) for number in range(100)]
    assert states == [False] + [True] * 99
    assert len(caplog.messages) == 1


def test_disk_of_long_term_storage_is_another_one_when_it_is_not_below_data():
    assert storage_directory(CONFIG) is None
    assert storage_directory(replace(CONFIG, storage_url="file:///v/data/deep/chunks")) is None
    assert storage_directory(replace(CONFIG, storage_url="s3://bucket/prefix")) is None
    assert storage_directory(replace(CONFIG, storage_url="file:///mnt/a%20b/")) == "/mnt/a b"
