"""A running node takes new options over at SIGHUP."""

import os
import signal
import time
from urllib.request import Request, urlopen

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode


@pytest.mark.parametrize("processes", ["1", "2"])
def test_running_node_takes_over_new_options_and_refuses_wrong_ones(tmp_path, processes):
    path = tmp_path / "sarit.toml"
    path.write_text('log-level = "info"\ncontainers = 2\n')
    env = {**os.environ, "SARIT_CONFIG": str(path)}
    node = RunningNode(tmp_path / "data", "--processes", processes, "--http-port", "0", env=env).start()

    def hang_up(expected: str) -> None:
        os.kill(node.pid, signal.SIGHUP)
        end = time.monotonic() + 30
        while expected not in node.log():
            assert time.monotonic() < end, node.log()
            time.sleep(0.02)

    try:
        path.write_text('log-level = "debug"\ncontainers = 2\nscrub = "1M"\nmemory = "1G"\n')
        hang_up("the options are reloaded: changed: scrub 8M -> 1M, log-level info -> debug; needs a restart: memory (")
        path.write_text('log-level = "loud"\n')
        hang_up(f"the options are not reloaded, and the old ones hold: {path}:1: log-level: 'loud' is not allowed")
        path.write_text('log-format = "json"\nlog-level = "debug"\ncontainers = 2\n')
        hang_up('"message": "the options are reloaded: changed: scrub 1M -> 8M, log-format text -> json')
        if processes == "1":
            request = Request(f"http://{node.http}/admin/log-level", data=b"error", method="PUT")
            with urlopen(request, timeout=HANG_SECONDS) as reply:
                assert reply.read() == b'{"level":"error"}'
            assert '"message": "the level of the log is changed: debug -> error"' in node.log()
    finally:
        assert node.stop() == 0
    assert "serves after " in node.log()
