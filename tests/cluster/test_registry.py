"""The schema registry of a cluster: each controller has it, over the same schemas."""

from __future__ import annotations

import httpx
import pytest

from tests import secured
from tests.cluster.processes import RunningCluster

PREFIX = "registry/confluent"


@pytest.mark.skipif(secured.ON, reason="it asks without a log-in")
def test_each_controller_answers_for_all(tmp_path) -> None:
    environ = {"SARIT_REGISTRY": "on", "SARIT_REGISTRY_PORT": "off"}
    with RunningCluster(tmp_path / "cluster", stores=1, containers=2, http=True, environ=environ) as cluster:
        first, second = (f"http://{controller.http}/{PREFIX}" for controller in cluster.controllers)
        made = httpx.post(f"{first}/subjects/s/versions", json={"schema": '"string"'}).json()
        assert httpx.get(f"{second}/schemas/ids/{made['id']}").json()["guid"] == made["guid"]
        assert httpx.get(f"{second}/subjects").json() == ["s"]
        cluster.controllers[0].kill()
        other = httpx.post(f"{second}/subjects/t/versions", json={"schema": '"int"'}).json()
        assert other["id"] == made["id"] + 1
        assert httpx.post(f"{second}/subjects/t/versions", json={"schema": '"string"'}).status_code == 409
        (store,) = cluster.stores.values()
        assert httpx.get(f"http://{store.http}/{PREFIX}/subjects").status_code == 404
