"""Health of a cluster's processes, as probes see it."""

import signal
import time

import pytest

from tests.cluster.processes import LEASE_SECONDS, RunningCluster
from tests.limits import HANG_SECONDS
from tests.test_health import get

pytestmark = pytest.mark.long


def until(address, code, *, ready):
    """Poll until a process has this reason, and is ready or not."""
    end = time.monotonic() + HANG_SECONDS
    while True:
        found = get(address, "/healthz")[1]
        if found["ready"] is ready and (code is None or code in {reason["code"] for reason in found["reasons"]}):
            assert get(address, "/readyz")[0] == (200 if ready else 503)
            return found
        assert time.monotonic() < end, found
        time.sleep(0.1)


def test_zookeeper_that_is_away_and_a_drain_are_reported(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=2, controllers=1, containers=4, http=True) as cluster:
        first, second = cluster.stores["s1"], cluster.stores["s2"]
        controller = cluster.controllers[0]
        for process in (first, second, controller):
            assert get(process.http, "/readyz")[0] == 200
        cluster.zookeeper.kill()
        # First the lease still runs, then it is lost, and the store with it.
        until(first.http, "zookeeper-away", ready=True)
        gone = time.monotonic()
        until(first.http, "zookeeper-away", ready=False)
        assert time.monotonic() - gone < 3 * LEASE_SECONDS
        until(controller.http, "zookeeper-away", ready=True)
        cluster.zookeeper.start()
        for process in (first, second, controller):
            until(process.http, None, ready=True)
        cluster.sarit("cluster", "drain", "s1")
        found = until(first.http, "draining", ready=True)
        assert all(container["state"] == "absent" for container in found["containers"])
        first.signal(signal.SIGTERM)
        assert first.stop() == 0
        assert "Traceback" not in cluster.log()
