"""`sarit.torch` with PyTorch and torchdata: workers, exact resumption, epochs, another number of workers."""

from __future__ import annotations

import itertools
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import sarit
import sarit.torch as sarit_torch
from sarit.training import merge
from tests.training.node import running_node

pytestmark = pytest.mark.long

EVENTS = 5000
SETTINGS = {"dtype": "int64", "shape": (2,), "batch_rows": 50, "shuffle_rows": 300, "piece_bytes": 4096, "seed": 1}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory):
    with running_node(Path(tmp_path_factory.mktemp("torch"))) as controller, sarit.connect(controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=3)
        keys = [str(number % 50) for number in range(EVENTS)]
        with client.writer("s/t") as writer:
            writer.write_many([np.int64([number, -number]).tobytes() for number in range(EVENTS)], keys=keys)
        yield controller


def dataset(address: str, **named) -> sarit_torch.StreamDataset:
    return sarit_torch.StreamDataset("s/t", address=address, **{**SETTINGS, **named})


def loader(given, workers: int, kind=DataLoader, **named):
    return kind(given, batch_size=None, num_workers=workers, **named)


def numbers(batches) -> list[int]:
    found = []
    for batch in batches:
        assert batch["value"].dtype == torch.int64
        assert (batch["value"][:, 0] == -batch["value"][:, 1]).all()
        found += batch["value"][:, 0].tolist()
    return found


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_share_an_epoch(address, method) -> None:
    context = multiprocessing.get_context(method)
    found = numbers(loader(dataset(address), 2, multiprocessing_context=context))
    assert sorted(found) == list(range(EVENTS))


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (2, False), (2, True)])
def test_stateful_loader_resumes_exactly(address, workers, persistent) -> None:
    named = {"persistent_workers": persistent}
    expected = numbers(loader(dataset(address), workers, StatefulDataLoader, **named))
    assert sorted(expected) == list(range(EVENTS))
    for steps in (0, 1, 17, EVENTS // 50 - 1):
        first = loader(dataset(address), workers, StatefulDataLoader, **named)
        iterator = iter(first)
        found = numbers(itertools.islice(iterator, steps))
        state = first.state_dict()
        del iterator, first
        resumed = loader(dataset(address), workers, StatefulDataLoader, **named)
        resumed.load_state_dict(state)
        assert found + numbers(resumed) == expected
        assert numbers(resumed) == expected  # the next epoch, of the same number


@pytest.mark.parametrize("workers", [0, 2])
def test_position_of_all_workers_is_for_any_number(address, workers) -> None:
    first = loader(dataset(address), workers, StatefulDataLoader)
    found = numbers(itertools.islice(iter(first), 23))
    state = first.state_dict()
    for others in (0, 1, 3):
        given = dataset(address)
        given.load_state_dict(merge(state))
        resumed = loader(given, others)
        assert sorted(found + numbers(resumed)) == list(range(EVENTS))
        assert sorted(numbers(resumed)) == list(range(EVENTS))  # the next iteration is a whole epoch


def test_one_dataset_resumes_more_than_once(address) -> None:
    given = dataset(address)
    first = loader(given, 2, StatefulDataLoader)
    expected = numbers(first)
    for steps in (3, 30, 50):
        again = loader(given, 2, StatefulDataLoader)
        found = numbers(itertools.islice(iter(again), steps))
        state = again.state_dict()
        resumed = loader(given, 2, StatefulDataLoader)
        resumed.load_state_dict(state)
        assert found + numbers(resumed) == expected


def test_epochs_reach_persistent_workers(address) -> None:
    given = dataset(address)
    reading = loader(given, 2, persistent_workers=True)
    found = []
    for epoch in (0, 1, 1, 0):
        given.set_epoch(epoch)
        found.append(numbers(reading))
    assert found[0] == found[3] != found[1] == found[2]
    assert sorted(found[1]) == list(range(EVENTS))


def test_main_process_does_not_invent_the_position_of_workers(address) -> None:
    given = dataset(address)
    fresh = given.state_dict()
    reading = loader(given, 2)
    numbers(reading)
    with pytest.raises(sarit.Invalid, match="StatefulDataLoader"):
        given.state_dict()
    given.load_state_dict(fresh)
    assert given.state_dict() == fresh


def test_ranks_come_from_torchrun(address, monkeypatch) -> None:
    with sarit.connect(address) as client:
        cuts = [str(client.cut("s/t", which)) for which in ("head", "tail")]
    monkeypatch.setenv("WORLD_SIZE", "3")
    found = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        given = sarit_torch.StreamDataset("s/t", *cuts, address=address, **SETTINGS)
        assert f"rank {rank} of 3" in repr(given)
        found += numbers(loader(given, 2))
    assert sorted(found) == list(range(EVENTS))
    with pytest.raises(sarit.Invalid, match="each would see another head and tail"):
        dataset(address)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(sarit.Invalid, match="RANK=one"):
        dataset(address)


def test_failures_in_workers_keep_their_kind(address) -> None:
    with pytest.raises(sarit.Corrupt, match="where 24 are needed"):
        numbers(loader(dataset(address, shape=(3,)), 2))


def test_lists_of_bytes_are_no_tensors(address) -> None:
    given = sarit_torch.StreamDataset("s/t", address=address, positions=True)
    batch = next(iter(loader(given, 0)))
    assert isinstance(batch["value"][0], bytes)
    assert batch["offset"].dtype == torch.int64


def test_tail_is_followed(address) -> None:
    with sarit.connect(address) as client:
        client.create_stream("s/followed", segments=2)
        given = sarit_torch.StreamDataset(
            "s/followed", follow=True, end=None, address=address, dtype="int64", shape=(2,)
        )
        reading = loader(given, 2, StatefulDataLoader)
        iterator, found = iter(reading), []
        for first in (0, 100, 200):
            with client.writer("s/followed") as writer:
                writer.write_many(
                    [np.int64([n, -n]).tobytes() for n in range(first, first + 100)], keys=list("ab" * 50)
                )
            if first == 100:
                client.stream("s/followed").scale(4)
            while len(found) < first + 100:
                found += numbers([next(iterator)])
        state = reading.state_dict()
        client.seal_stream("s/followed")
        assert sorted(found) == list(range(300))
        resumed = loader(given, 2, StatefulDataLoader)
        resumed.load_state_dict(state)
        assert numbers(resumed) == []
