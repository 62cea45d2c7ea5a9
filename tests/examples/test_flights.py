"""The demo leaves no node running, whatever ends it: the next run could not start one on its directory."""

from __future__ import annotations

import signal

import pytest

from examples.flights import demo
from examples.flights import node as nodes
from examples.flights.query import root_cause


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


_JAVA = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 failed
org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "writing.py", line 1, in write
sarit.core.errors.Unavailable: no answer for 300 s: start the node

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:2)
"""


@pytest.mark.parametrize(("text", "cause"), [
    (_JAVA, "Unavailable: no answer for 300 s: start the node"),
    (_JAVA + "Caused by: java.io.IOException: No space left on device\n", "IOException: No space left on device"),
    ("ValueError: a bad row", "ValueError: a bad row"), ("it failed\nsomewhere", "it failed"), ("", "RuntimeError"),
])  # fmt: skip
def test_root_cause_of_an_error_of_spark_is_named(text, cause) -> None:
    assert root_cause(RuntimeError(text)) == cause
