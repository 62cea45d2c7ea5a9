"""`sarit.datasets` with Hugging Face's datasets: shards, formats, exact resumption, workers of PyTorch."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from datasets.distributed import split_dataset_by_node
from torchdata.stateful_dataloader import StatefulDataLoader

import sarit
from sarit.datasets import stream_dataset
from sarit.serializers.payload_columns import json_columns
from tests.training.node import running_node

pytestmark = pytest.mark.long

EVENTS = 3000
SETTINGS = {"piece_bytes": 8192, "batch_rows": 70}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory):
    with running_node(Path(tmp_path_factory.mktemp("datasets"))) as controller, sarit.connect(controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=3)
        with client.writer("s/t") as writer:
            keys = [str(number % 50) for number in range(EVENTS)]
            writer.write_many([b'{"x": %d, "name": "%d"}' % (number, number) for number in range(EVENTS)], keys=keys)
        yield controller


@pytest.fixture
def dataset(address):
    columns = json_columns(pa.schema([("x", pa.int64()), ("name", pa.string())]))
    return stream_dataset("s/t", address=address, columns=columns, **SETTINGS)


def test_rows_have_the_columns(dataset) -> None:
    assert dataset.features.arrow_schema.names == ["x", "name"]
    rows = list(dataset)
    assert sorted(row["x"] for row in rows) == list(range(EVENTS))
    assert all(row["name"] == str(row["x"]) for row in rows)
    assert dataset.num_shards > 10


def test_bytes_are_the_value(address) -> None:
    rows = list(stream_dataset("s/t", address=address, positions=True).take(5))
    assert all(row["value"].startswith(b'{"x": ') for row in rows)
    assert [row["segment"] for row in rows] == [0] * 5


@pytest.mark.parametrize("steps", [1, 69, 70, 71, 500, EVENTS])
@pytest.mark.parametrize("shuffled", [False, True])
def test_resumed_exactly(dataset, steps, shuffled) -> None:
    """Shuffled by shards: what is in a buffer of the package is lost in its own `state_dict`, as its guide says."""
    given = dataset.shuffle(seed=3, buffer_size=1) if shuffled else dataset
    expected = [row["x"] for row in given]
    assert (expected != [row["x"] for row in dataset]) == shuffled
    found = [row["x"] for row in itertools.islice(given, steps)]
    state = given.state_dict()
    given.load_state_dict(state)
    rest = [row["x"] for row in given]
    assert found + rest == expected


def test_arrow_batches_resume_exactly(dataset) -> None:
    given = dataset.with_format("arrow")
    expected = [x for table in given.iter(batch_size=33) for x in table["x"].to_pylist()]
    assert sorted(expected) == list(range(EVENTS))
    found = [x for table in itertools.islice(given.iter(batch_size=33), 20) for x in table["x"].to_pylist()]
    given.load_state_dict(given.state_dict())
    assert found + [x for table in given.iter(batch_size=33) for x in table["x"].to_pylist()] == expected


def test_nodes_and_workers_share_the_rows(dataset) -> None:
    found = []
    for rank in range(2):
        part = split_dataset_by_node(dataset, rank, 2).with_format("torch")
        reading = StatefulDataLoader(part, batch_size=50, num_workers=2)
        begun = [x for batch in itertools.islice(iter(reading), 7) for x in batch["x"].tolist()]
        state = reading.state_dict()
        resumed = StatefulDataLoader(part, batch_size=50, num_workers=2)
        resumed.load_state_dict(state)
        found += begun + [x for batch in resumed for x in batch["x"].tolist()]
    assert sorted(found) == list(range(EVENTS))


def test_wrong_choices_are_refused(address) -> None:
    with pytest.raises(sarit.Invalid, match="a dataset has an end"):
        stream_dataset("s/t", end=None, address=address)
    with pytest.raises(sarit.NotFound):
        stream_dataset("s/none", address=address)
