"""Rolling restarts under the load of Pravega's clients and ours: no error, nothing missing or doubled."""

import time

import pytest

from tests.cluster.loaded_clients import finish, loaded_clients
from tests.cluster.processes import RunningCluster
from tests.cluster.rolling import run, whole

pytestmark = pytest.mark.long

# Pravega's Python client tries a port where nobody listens after 1, 10, 100 ms, 1 s, and then every 10 s.
AWAY_SECONDS = 3.0
LONGEST_CALL_MS = 9000


def test_no_client_sees_an_error_in_a_rolling_restart(tmp_path):
    with RunningCluster(tmp_path / "cluster", containers=8) as cluster:
        clients = run(cluster, tmp_path, print)
        assert not [(client.name, error) for client in clients for error in client.errors]
        assert all(client.acknowledged and client.calls for client in clients)
        assert "Traceback" not in cluster.log()


def test_no_client_sees_an_error_in_a_rolling_restart_by_probes_alone(tmp_path):
    with RunningCluster(tmp_path / "cluster", containers=8, http=True) as cluster:
        clients = run(cluster, tmp_path, print, kinds=("sarit", "python"), probes=True)
        assert not [(client.name, error) for client in clients for error in client.errors]
        assert all(client.acknowledged and client.calls for client in clients)
        assert "Traceback" not in cluster.log()


def test_client_of_one_controller_goes_on_as_soon_as_that_is_back_if_its_socket_stayed_open(tmp_path):
    with RunningCluster(tmp_path / "cluster", containers=4, sockets=True) as cluster:
        with loaded_clients(cluster, tmp_path, ["sarit", "python"]) as clients:
            for controller in cluster.controllers:
                assert controller.stop() == 0
                time.sleep(AWAY_SECONDS)
                controller.begin().wait()
                cluster.until(whole(cluster))
            finish(clients, cluster.controller)
        assert not [(client.name, error) for client in clients for error in client.errors]
        assert all(client.calls for client in clients)
        longest = {client.name: client.longest_call_ms for client in clients}
        assert AWAY_SECONDS * 1000 <= longest["Python, one controller"] < LONGEST_CALL_MS, longest
