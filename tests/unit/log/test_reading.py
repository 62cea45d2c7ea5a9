"""Reading of handmade log files: valid frames, void frames and damage."""

from __future__ import annotations

import random

import pytest

from sarit.core.errors import Corrupt
from sarit.log.file_reader import RunReader, check_tail, list_files, replay, survey_tail
from sarit.log.limits import LOG_BLOCK_BYTES
from sarit.log.records import FRAME, WATERMARK, FileHeader, GroupEncoder, file_name, parse_file_name
from simulation.disk import SimulatedDisk
from tests.unit.log.world import payload_of

IDENTITY = b"identity of a log"[:16]


class Directory:
    """Writes log files record by record."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(random.Random(0))
        self.disk.make_dirs("/log/1")
        self._sequence = 0

    def file(self, epoch: int, groups, *, base: int = 0, durable: int = 0, blocks: int = 12) -> str:
        """`groups`: lists of (kind, number, durable, payload)."""
        self._sequence += 1
        salt = random.Random(self._sequence).randbytes(12)
        header = FileHeader(1, self._sequence, epoch, base, durable, salt, IDENTITY)
        path = f"/log/1/{file_name(self._sequence, 'log')}"
        file = self.disk.open(path, "create")
        file.allocate(blocks * LOG_BLOCK_BYTES)
        file.pwrite([header.block()], 0)
        position = LOG_BLOCK_BYTES
        for records in groups:
            group = GroupEncoder(header, position)
            for kind, number, known, payload in records:
                group.add(kind, epoch, number, known, [payload])
            length = group.finish()
            file.pwrite(group.parts, position)
            position += length
        file.datasync()
        file.close()
        return path

    def read(self, after: int = 0, read_bytes: int = 1 << 20, covered: int = 0):
        listing = list_files(self.disk, "/log/1", 1)
        if listing.foreign:
            raise Corrupt(listing.foreign[0])
        logs = listing.logs
        tail = survey_tail(self.disk, logs, read_bytes, covered=covered)
        check_tail(tail, logs)
        windows = replay(self.disk, logs, after, tail.end, read_bytes)
        return tail, [(f.number, bytes(f.payload)) for window in windows for f in window]


def frame(number: int, durable: int = 0, payload: bytes | None = None):
    return (FRAME, number, durable, payload_of(number) if payload is None else payload)


@pytest.fixture
def directory() -> Directory:
    return Directory()


def test_valid_and_invalid_names() -> None:
    assert file_name(7, "log") == "000000000007.log"
    assert parse_file_name("000000000007.log") == (7, "log")
    assert parse_file_name("1234567890123.spare") == (1234567890123, "spare")
    for name in ("7.log", "000000000007.txt", "lock", "00000000000x.log", "000000000007", "٠٠٠٠٠٠٠٠٠٠٠٧.log"):
        assert parse_file_name(name) is None


def test_frames_of_later_epoch_replace_void_frames(directory) -> None:
    directory.file(1, [[frame(1)], [frame(2, 1), frame(3, 1, b"void"), frame(4, 1, b"void")]])
    directory.file(2, [[frame(3, 2, b"three")]], base=2, durable=2)
    tail, found = directory.read()
    assert (tail.end, tail.durable) == (3, 2)
    assert found == [(1, payload_of(1)), (2, payload_of(2)), (3, b"three")]


def test_void_frames_beyond_the_end_stay_void(directory) -> None:
    directory.file(1, [[frame(1), frame(2, 0, b"void")]])
    directory.file(2, [], base=1, durable=1)
    directory.file(3, [], base=1, durable=1)
    tail, found = directory.read()
    assert tail.end == 1
    assert found == [(1, payload_of(1))]


def test_base_of_any_later_epoch_voids_frames(directory) -> None:
    directory.file(1, [[frame(n) for n in range(1, 6)]])
    directory.file(2, [[frame(4, 3, b"void too"), frame(5, 3, b"void too")]], base=3, durable=3)
    directory.file(3, [[frame(3, 2, b"3"), frame(4, 2, b"4")]], base=2, durable=4)
    _, found = directory.read()
    assert found == [(1, payload_of(1)), (2, payload_of(2)), (3, b"3"), (4, b"4")]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_gap_between_files_is_corrupt_when_replayed(directory, after) -> None:
    directory.file(1, [[frame(1), frame(2)]])
    directory.file(1, [[frame(5, 4), frame(6, 4)]])
    with pytest.raises(Corrupt, match=f"frames {max(after + 1, 3)} to 4 of"):
        directory.read(after)
    assert directory.read(4)[1] == [(5, payload_of(5)), (6, payload_of(6))]


def test_loss_of_carried_frames_is_corrupt(directory) -> None:
    directory.file(1, [[frame(1)], [frame(2, 1)]])
    path = directory.file(2, [[frame(2, 1)]], base=1, durable=2)
    assert [number for number, _ in directory.read()[1]] == [1, 2]
    directory.disk.flip(path, LOG_BLOCK_BYTES + 50)
    with pytest.raises(Corrupt, match="frames 2 to 2"):
        directory.read()


def test_torn_record_ends_the_run_before_a_valid_block(directory) -> None:
    """Frame 3 begins inside a block and ends with it; reading on at the next block finds frame 4."""
    torn = [frame(2, 1, bytes(16)), frame(3, 1, b"3" * (LOG_BLOCK_BYTES - 64 - 48)), frame(4, 1)]
    path = directory.file(1, [[frame(1)], torn])
    file = directory.disk.open(path, "write")
    file.pwrite([bytes(512)], 2 * LOG_BLOCK_BYTES + 512)  # never synced
    tail, found = directory.read()
    assert tail.end == 2
    assert [record.number for record in tail.carried] == [2]
    assert [number for number, _ in found] == [1, 2]


@pytest.mark.parametrize("known", [2, 3, 4])
def test_durable_number_after_damage_distinguishes_rot_from_torn_tail(directory, known) -> None:
    path = directory.file(
        1, [[frame(1)], [frame(2, 1)], [frame(3, 2)], [frame(4, min(known, 3))], [(WATERMARK, 4, known, b"")]]
    )
    directory.disk.flip(path, 3 * LOG_BLOCK_BYTES + 50)  # frame 3
    if known < 3:
        assert directory.read()[0].end == 2
        return
    with pytest.raises(Corrupt, match=f"frames 3 to {known} "):
        directory.read()


def test_durable_number_of_later_empty_file_counts(directory) -> None:
    directory.file(1, [[frame(1)]])
    path = directory.file(1, [[frame(2, 1)], [frame(3, 2)]])
    directory.disk.flip(path, LOG_BLOCK_BYTES + 50)
    with pytest.raises(Corrupt, match="frames 2 to 2 of the durable log"):
        directory.read()


@pytest.mark.parametrize("read_bytes", [48, 64, 100, 1000, 4095, 4096, 4097, 9000, 1 << 20])
def test_result_is_independent_of_window_size(directory, read_bytes) -> None:
    rng = random.Random(1)
    sizes = [rng.choice((0, 1, 8, 47, 48, 3000, LOG_BLOCK_BYTES - 48, 9000)) for _ in range(40)]
    numbers = iter(range(1, 41))
    groups, known = [], 0
    while len(groups) < 10:
        records = [frame(n, known, payload_of(n, sizes[n - 1])) for n in (next(numbers) for _ in range(4))]
        groups.append(records)
        known = records[-1][1]
    path = directory.file(1, groups, blocks=80)
    tail, found = directory.read(read_bytes=read_bytes)
    assert (tail.end, tail.durable) == (40, 36)
    assert [record.number for record in tail.carried] == [37, 38, 39, 40]
    assert found == [(n, payload_of(n, sizes[n - 1])) for n in range(1, 41)]
    log = list_files(directory.disk, "/log/1", 1).logs[0]
    at = directory.disk.content(path).index(payload_of(7, sizes[6])[:40]) if sizes[6] else 0
    if at:
        directory.disk.flip(path, at)
        reader = RunReader(directory.disk.open(path, "read"), log.header, read_bytes)
        while not reader.ended:
            reader.next_records()
        assert reader.last == 6
        assert reader.durable_past_end == 36


@pytest.mark.parametrize("damaged", [3, 4])
@pytest.mark.parametrize("read_bytes", [64, 4097, 1 << 20])
def test_covered_rot_inside_a_block_is_passed(directory, damaged, read_bytes) -> None:
    """The next frame is in the same block, or the damaged one is the last: its header is the only trace of it."""
    path = directory.file(1, [[frame(1), frame(2)], [frame(3, 2), frame(4, 2)]])
    content = directory.disk.content(path)
    directory.disk.flip(path, content.index(payload_of(damaged)))
    tail, found = directory.read(4, read_bytes, covered=4)
    assert (tail.end, tail.durable, found) == (4, 4, [])
    if damaged == 3:
        assert directory.read(3, read_bytes, covered=3)[1] == [(4, payload_of(4))]


def test_tag_inside_payload_is_no_record(directory) -> None:
    salt = random.Random(1).randbytes(12)
    fake = FileHeader(1, 1, 1, 0, 0, salt, IDENTITY)
    group = GroupEncoder(fake, LOG_BLOCK_BYTES)
    group.add(FRAME, 1, 99, 98, [b"fake"])
    group.finish()
    record = b"".join(group.parts)[:56]  # valid at another position, with the same salt
    directory.file(1, [[frame(1, 0, salt[:4] * 500)], [frame(2, 1, record * 20)]])
    tail, found = directory.read()
    assert (tail.end, tail.durable) == (2, 1)
    assert len(found) == 2


def test_damaged_first_number_is_detected_by_checksum(directory) -> None:
    """The damaged number in a first record suggests that the file before is not needed."""
    directory.file(1, [[frame(1)], [frame(2, 1)]])
    path = directory.file(1, [[frame(3, 2)], [frame(4, 3)]])
    directory.disk.flip(path, LOG_BLOCK_BYTES + 31, bit=1)  # 3 -> 1
    with pytest.raises(Corrupt):
        directory.read()


def test_epoch_below_that_of_earlier_file_is_corrupt(directory) -> None:
    directory.file(2, [[frame(1)]])
    directory.file(1, [[frame(2)]])
    with pytest.raises(Corrupt, match="epoch 1, after one of epoch 2"):
        directory.read()


def test_an_empty_directory_is_an_empty_log(directory) -> None:
    tail, found = directory.read()
    assert (tail.end, tail.durable, found) == (0, 0, [])
