"""How events become batches: what a caller of a loader chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.training.limits import TRAINING_BATCH_ROWS

if TYPE_CHECKING:
    from sarit.training.tensors import Form


@dataclass(frozen=True)
class Settings:
    """How events become batches.

    `skip`: what was truncated is passed over.  `prefetch`: a thread reads ahead of the caller."""

    form: Form
    batch_rows: int = TRAINING_BATCH_ROWS
    drop_last: bool = False
    skip: bool = False
    prefetch: bool = False
