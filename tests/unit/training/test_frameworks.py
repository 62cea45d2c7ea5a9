"""Without its framework, a module of readers for training says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from sarit.core.extras import MissingExtra


@pytest.mark.parametrize(
    ("module", "package", "text"),
    [
        ("sarit.torch", "torch", "needs PyTorch, which Sarit does not bring: install torch"),
        ("sarit.datasets", "datasets", "Hugging Face's datasets, which Sarit does not bring: install datasets"),
        ("sarit.ray", "ray", r"Ray Data, which Sarit does not bring: install ray\[data\]"),
    ],
)
def test_missing_framework_is_named(module, package, text, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingExtra, match=text):
        importlib.import_module(module)


def test_training_is_imported_without_a_client() -> None:
    """Names are imported on first use: the package itself costs nothing."""
    assert "StreamLoader" in dir(importlib.import_module("sarit.training"))
    with pytest.raises(AttributeError, match="has no attribute 'none'"):
        importlib.import_module("sarit.training").none  # noqa: B018
