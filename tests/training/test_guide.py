"""docs/guides/training.md as it is pasted, with the blocks that need a framework (```py)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import ray

from tests.guides.pages import blocks, run_python
from tests.training.node import ROOT, running_node

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "guides" / "training.md"


def test_guide_runs_with_frameworks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [block for block in blocks(PAGE.read_text()) if block.kind in ("python", "py")]
    assert {block.kind for block in found} == {"python", "py"}
    with running_node(tmp_path) as controller:
        monkeypatch.setenv("SARIT_CONTROLLER", controller)
        names: dict[str, object] = {"__name__": "training"}
        # The page lets Ray start by itself; the tests of Ray start their own.
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
        try:
            for block in found:
                run_python(block, PAGE, names)
        finally:
            ray.shutdown()
    assert os.environ["SARIT_CONTROLLER"] == controller
