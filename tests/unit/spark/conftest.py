"""What the connector keeps for all tasks of a process ends with each file here: a process of tests runs many files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sarit.spark.client import CLIENTS
from sarit.spark.registry.access import REGISTRIES
from sarit.spark.sink.access import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT: tuple[Any, ...] = (CLIENTS, REGISTRIES, CONNECTIONS)


@pytest.fixture(scope="module", autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    for kept in KEPT:
        for _, key in list(kept._made):
            kept.forget(key)
