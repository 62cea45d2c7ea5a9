"""`sarit.ray` with Ray Data, on a Ray of this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ray

import sarit
from sarit.ray import read_stream
from sarit.serializers.payload_columns import json_columns
from sarit.training import FixedFrames
from tests.training.node import running_node

pytestmark = pytest.mark.long

EVENTS = 20_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory):
    directory = Path(tmp_path_factory.mktemp("ray"))
    with running_node(directory) as controller, sarit.connect(controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=3)
        client.create_stream("s/empty")
        client.create_stream("s/bytes")
        with client.writer("s/t") as writer:
            keys = [str(number % 50) for number in range(EVENTS)]
            writer.write_many([b'{"x": %d, "name": "%d"}' % (number, number) for number in range(EVENTS)], keys=keys)
        with client.byte_writer("s/bytes") as writer:
            writer.write(np.arange(1000, dtype=np.int64).tobytes())
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
        try:
            yield controller
        finally:
            ray.shutdown()


def test_stream_is_read_once_by_tasks(address) -> None:
    columns = json_columns(pa.schema([("x", pa.int64()), ("name", pa.string())]))
    found = read_stream("s/t", address=address, columns=columns, piece_bytes=16_384, override_num_blocks=7)
    assert found.schema().names == ["x", "name"]
    assert found.sum("x") == EVENTS * (EVENTS - 1) // 2
    assert sorted(row["x"] for row in found.iter_rows()) == list(range(EVENTS))
    assert found.limit(3).count() == 3


def test_batches_of_bytes_have_places(address) -> None:
    found = read_stream("s/t", address=address, positions=True)
    batch = next(iter(found.iter_batches(batch_size=100, batch_format="numpy")))
    assert set(batch) == {"value", "segment", "offset"}
    assert found.count() == EVENTS


def test_empty_stream_is_an_empty_dataset(address) -> None:
    assert read_stream("s/empty", address=address).count() == 0


def test_frames_of_a_byte_stream(address) -> None:
    found = read_stream("s/bytes", address=address, frames=FixedFrames(8), piece_bytes=1024)
    numbers = sorted(int(np.frombuffer(row["value"], np.int64)[0]) for row in found.iter_rows())
    assert numbers == list(range(1000))


def test_wrong_stream_is_refused_before_tasks_run(address) -> None:
    with pytest.raises(sarit.NotFound):
        read_stream("s/none", address=address)
