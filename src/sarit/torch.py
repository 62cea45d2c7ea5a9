"""Streams for PyTorch: an iterable dataset with exact positions, shards by rank and worker, and epochs.

    dataset = sarit.torch.StreamDataset("shop/images", start, end, dtype="uint8", shape=(28, 28), batch_rows=256)
    for batch in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=4):
        ...  # batch["value"]: a tensor of 256 x 28 x 28

PyTorch is yours: Sarit brings none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid
from sarit.core.extras import MissingExtra
from sarit.training.loader import StreamLoader

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise MissingExtra(f"sarit.torch needs PyTorch, which Sarit does not bring: install torch ({error})") from None

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName

__all__ = ["StreamDataset"]


class StreamDataset(IterableDataset):  # type: ignore[misc]
    """Everything between two cuts of a stream, as batches of tensors, epoch after epoch.

    Give it to a DataLoader with `batch_size=None`: its items are batches already, dicts of tensors, or of lists of what
    no tensor holds.  `named` and the errors are those of `sarit.training.StreamLoader`.  `rank`, `world_size`: None:
    those of torch.distributed, if it is initialized, else of the variables RANK and WORLD_SIZE.

    With workers, positions are those of torchdata's StatefulDataLoader.  Without, `state_dict` has them."""

    def __init__(
        self,
        stream: str | StreamName,
        start: StreamCut | str | int = "head",
        end: StreamCut | str | int | None = "tail",
        *,
        rank: int | None = None,
        world_size: int | None = None,
        **named: Any,
    ) -> None:
        if rank is None or world_size is None:
            rank, world_size = default_rank(os.environ)
        self._loader = StreamLoader(stream, start, end, rank=rank, world_size=world_size, **named)
        if self._loader.unsettled:
            # Before there are workers: each would see another tail.
            self._loader.plan()
        # Shared with the workers: the epoch, the seed of the iteration that took the state which this process has
        # loaded, and whether workers have read.
        self._shared = torch.zeros(3, dtype=torch.int64).share_memory_()
        self._loaded_by = 0  # the process that has loaded the state

    def __repr__(self) -> str:
        return f"StreamDataset({self._loader!r})"

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return int(self._shared[0])

    @property
    def total_bytes(self) -> int:
        """How much an epoch has to read, of all ranks, headers of events included."""
        return self._loader.total_bytes

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration begin this epoch, in its order; or go on in it, if the state loaded last is of it.

        Workers that persist see it, too.  Raises Invalid."""
        self._loader.set_epoch(epoch)
        self._shared[0] = epoch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Return the batches of this rank, or of this worker of it.  Raises what the loader raises."""
        worker = get_worker_info()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if worker is not None:
            self._shared[2] = 1
            if self._loader.has_state and self._loaded_by != os.getpid():
                self._share_state(worker.seed - worker.id)
        if not self._loader.follow:
            self._loader.set_epoch(self.epoch)
        loader = self._loader
        batches = loader.shard(loader.rank * count + number, loader.world_size * count)
        return map(_tensors, batches)

    def _share_state(self, seed: int) -> None:
        """Take the main process's state, with all workers of one iteration (its seed); those of a later one do not."""
        if int(self._shared[1]) in (0, seed):
            self._shared[1] = seed
        else:
            self._loader.drop_state()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that was handed out: plain values, for JSON.

        Raises Invalid in a process whose workers read: it does not know what they handed out."""
        if get_worker_info() is None and int(self._shared[2]) and not self._loader.begun:
            raise Invalid(
                "workers of a DataLoader read this dataset, and each has a position of its own: use torchdata's "
                "StatefulDataLoader and its state_dict, or no workers"
            )
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration go on at a position, of `state_dict` or of `sarit.training.merge`.

        Raises Invalid: it is of another stream, seed or order."""
        self._loader.load_state_dict(dict(state))
        self._loaded_by = os.getpid()
        self._shared[0] = self._loader.epoch
        if get_worker_info() is None:
            self._shared[1:] = 0


def default_rank(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return which of how many ranks this process is.  Raises Invalid: a variable is no number."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world_size = environ.get("RANK"), environ.get("WORLD_SIZE")
    if rank is None or world_size is None:
        return 0, 1
    if not (rank.isascii() and rank.isdigit() and world_size.isascii() and world_size.isdigit()):
        raise Invalid(
            f"RANK={rank[:20]} and WORLD_SIZE={world_size[:20]} are not both numbers: give rank and world_size"
        )
    return int(rank), int(world_size)


def _tensors(found: Any) -> Any:
    """Return numpy arrays as tensors that share their memory, in dicts of dicts, too."""
    if isinstance(found, dict):
        return {name: _tensors(value) for name, value in found.items()}
    return found if isinstance(found, list) else torch.from_numpy(found)
