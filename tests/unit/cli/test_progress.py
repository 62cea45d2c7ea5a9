"""What a copy shows on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from sarit.cli.progress import Bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_part_of_unknown_length_is_counted_on_a_terminal_alone(monkeypatch, stream, shown):
    monkeypatch.setattr(sys, "stderr", stream)
    bar = Bar()
    bar.begin("index 3", None)
    for _ in range(5):
        bar.add(700_000)
    bar.end()
    bar.add(1)
    lines = stream.getvalue().replace("\r", "\n").split("\n")
    expected = ["", "index 3  1,400,000 bytes", "index 3  2,800,000 bytes", "index 3  3,500,000 bytes", ""]
    assert lines == (expected if shown else [""])
