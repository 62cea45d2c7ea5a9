"""Rolling restarts under the load of Pravega's clients and ours: no error, nothing missing or doubled."""

import pytest

from tests.cluster.processes import RunningCluster
from tests.cluster.rolling import run

pytestmark = pytest.mark.long


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
