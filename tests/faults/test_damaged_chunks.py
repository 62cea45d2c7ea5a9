"""Damaged long-term storage under a real node: a clear error at once, on that segment alone."""

from __future__ import annotations

import time

import pytest

import sarit
from tests import fork_server
from tests.faults.damaged_chunks import DAMAGED, EVENTS, GOOD_EVENTS, KINDS, WHOLE, damage, event, write_both
from tests.limits import patient
from tests.nodes import SARIT, RunningNode

AT_ONCE_SECONDS = min(200.0, patient(30.0))  # a retried read takes 300 s


@pytest.fixture(scope="module", params=KINDS)
def damaged(request, tmp_path_factory):
    """A running node, the damaged chunk, and how many events before it can be read."""
    data = tmp_path_factory.mktemp(request.param) / "data"
    node = RunningNode(data, "--containers", "1").start()
    try:
        write_both(node)
        assert node.stop() == 0
        chunk = damage(data, request.param)
        with node:
            yield node, chunk.name.removesuffix(".chunk"), GOOD_EVENTS[request.param]
    finally:
        node.kill()


def lines(node, text):
    return [line for line in node.log().splitlines() if text in line]


def check(error, chunk, begun):
    assert time.monotonic() - begun < AT_ONCE_SECONDS
    for part in (f"{DAMAGED}/0.#epoch.0", "offset", chunk, "sarit verify"):
        assert part in str(error)


def test_reader_raises_corrupt_at_once_and_others_of_the_client_go_on(damaged):
    node, chunk, good = damaged
    with sarit.connect(node.controller) as client:
        other = client.reader(WHOLE, end="tail")
        assert next(iter(other)) == event(WHOLE, 0)
        begun, read = time.monotonic(), []
        with pytest.raises(sarit.Corrupt) as error:
            read.extend(client.reader(DAMAGED, end="tail"))
        check(error.value, chunk, begun)
        assert read == [event(DAMAGED, number) for number in range(len(read))]
        assert len(read) <= EVENTS // 2
        batch = []
        with pytest.raises(sarit.Corrupt):
            for found in client.reader(DAMAGED, end="tail"):
                batch.append(found)  # noqa: PERF402 - kept when the iteration fails
        assert good <= len(batch) <= EVENTS // 2
        assert batch == [event(DAMAGED, number) for number in range(len(batch))]
        assert [first[:40] for first in other] == [event(WHOLE, number)[:40] for number in range(1, EVENTS)]
    assert len(lines(node, "long-term storage is damaged")) == 1
    assert not lines(node, "closed: it"), "no connection was cut"


def test_reader_group_raises_corrupt_at_once(damaged):
    node, chunk, _ = damaged
    with sarit.connect(node.controller) as client:
        client.create_stream("storage/later")
        group = client.reader_groups.create("storage/group", [DAMAGED, WHOLE, "storage/later"])
        begun = time.monotonic()
        seen = set()
        with group.reader("one") as reader:
            with pytest.raises(sarit.Corrupt) as error:
                for _ in range(2 * EVENTS):
                    seen.add(reader.read(timeout=AT_ONCE_SECONDS).event)
            check(error.value, chunk, begun)
            while event(WHOLE, EVENTS - 1) not in seen:  # the other segments of the reader go on
                seen.add(reader.read(timeout=AT_ONCE_SECONDS).event)
            with client.writer("storage/later") as writer:  # certainly after the error
                writer.write(b"later")
            assert reader.read(timeout=AT_ONCE_SECONDS).event == b"later"
        assert {event(WHOLE, number) for number in range(EVENTS)} <= seen


def test_batch_and_bytes_raise_corrupt_at_once(damaged):
    node, chunk, _ = damaged
    with sarit.connect(node.controller) as client:
        begun = time.monotonic()
        with pytest.raises(sarit.Corrupt) as error:
            list(client.stream(DAMAGED).batch())
        check(error.value, chunk, begun)
        with pytest.raises(sarit.Corrupt), client.byte_reader(DAMAGED) as reader:
            while reader.read(1 << 16):
                pass


def test_command_fails_at_once_and_says_what_to_do(damaged):
    node, chunk, good = damaged
    command = [SARIT, "read", DAMAGED, "--controller", node.controller]
    done = fork_server.run(command, timeout=AT_ONCE_SECONDS * 4, check=False)
    assert done.returncode == 1
    assert done.stdout.count(b" event ") >= good
    check(done.stderr.decode(), chunk, time.monotonic())
    assert b"Traceback" not in done.stderr
