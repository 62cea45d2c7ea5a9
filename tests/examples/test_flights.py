"""The demo leaves no node running, whatever ends it: the next run could not start one on its directory."""

from __future__ import annotations

import signal

import pytest

from examples.flights import demo
from examples.flights import node as nodes


class Interrupting:
    """A pattern whose search raises KeyboardInterrupt."""

    def search(self, line: str) -> None:
        raise KeyboardInterrupt


def test_node_interrupted_during_start_is_stopped(tmp_path, monkeypatch) -> None:
    node = nodes.Node(tmp_path)
    monkeypatch.setattr(nodes, "READY", Interrupting())
    with pytest.raises(KeyboardInterrupt), node:
        pass
    assert node._process is not None
    assert node._process.returncode is not None
    monkeypatch.undo()
    with nodes.Node(tmp_path) as controller:
        assert controller.startswith("127.0.0.1:")


def test_sigterm_and_hangup_end_demo_like_ctrl_c() -> None:
    before = {number: signal.getsignal(number) for number in demo.ENDING}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        demo.end_in_order()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "nohup"
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job of a shell
        demo.end_in_order()
        for number in demo.ENDING:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
