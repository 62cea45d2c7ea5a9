"""The demo leaves no node behind, whatever ends it: the next run from its directory could not start one."""

from __future__ import annotations

import signal

import pytest

from examples.flights import demo
from examples.flights import node as nodes


class Interrupting:
    """What is looked for in the node's first line: Ctrl-C."""

    def search(self, line: str) -> None:
        raise KeyboardInterrupt


def test_a_node_that_is_interrupted_while_it_starts_is_stopped(tmp_path, monkeypatch) -> None:
    node = nodes.Node(tmp_path)
    monkeypatch.setattr(nodes, "READY", Interrupting())
    with pytest.raises(KeyboardInterrupt), node:
        pass
    assert node._process is not None
    assert node._process.returncode is not None
    monkeypatch.undo()
    with nodes.Node(tmp_path) as controller:
        assert controller.startswith("127.0.0.1:")


def test_a_kill_and_a_closed_terminal_end_it_as_ctrl_c_does() -> None:
    before = {number: signal.getsignal(number) for number in demo.ENDING}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        demo.end_in_order()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "nohup"
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        demo.end_in_order()
        for number in demo.ENDING:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
