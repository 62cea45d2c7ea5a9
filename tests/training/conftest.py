"""Tests with the frameworks are collected where these are installed: `make training`."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") is not None else ["test_*.py"]
