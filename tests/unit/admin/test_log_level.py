"""The level of the log over HTTP."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sarit.admin.log_level import PATH, routes
from sarit.process.observation.logs import LEVELS


class Log:
    """Has a level."""

    level = "info"

    def change(self, level: str) -> None:
        self.level = level


def client_of(log: Log, address: str = "127.0.0.1", base: str = "http://localhost:9091") -> TestClient:
    app = Starlette(routes=routes(LEVELS, lambda: log.level, log.change))
    return TestClient(app, base_url=base, client=(address, 50_000))


@pytest.mark.parametrize("body", ["debug", '"debug"', "DEBUG\n", '{"level": "debug"}'])
def test_level_is_changed_and_read(body):
    log = Log()
    client = client_of(log)
    assert client.get(PATH).json() == {"level": "info"}
    assert client.put(PATH, content=body).json() == {"level": "debug"}
    assert log.level == client.get(PATH).json()["level"] == "debug"


@pytest.mark.parametrize("body", ["", "loud", "{", '{"level": 7}', "[]", "{}", b"\xff", "{" * 5000])
def test_wrong_level_is_refused_with_those_that_there_are(body):
    log = Log()
    found = client_of(log).put(PATH, content=body)
    assert found.status_code == 400
    assert "give debug, info, warning, error" in found.json()["error"]
    assert log.level == "info"


@pytest.mark.parametrize(
    ("address", "base", "headers"),
    [
        ("10.0.0.7", "http://10.0.0.1:9091", {}),
        ("10.0.0.7", "http://localhost:9091", {}),
        ("127.0.0.1", "http://evil.example:9091", {}),
        ("127.0.0.1", "http://localhost:9091", {"Origin": "https://evil.example"}),
        ("127.0.0.1", "http://localhost:9091", {"Origin": "null"}),
    ],
)
def test_change_from_elsewhere_is_refused(address, base, headers):
    log = Log()
    found = client_of(log, address, base).put(PATH, content="debug", headers=headers)
    assert found.status_code == 403
    assert log.level == "info"


@pytest.mark.parametrize("base", ["http://127.0.0.1:9091", "http://[::1]:9091"])
def test_address_of_this_machine_is_local(base):
    log = Log()
    address = "::1" if "::1" in base else "127.0.0.1"
    found = client_of(log, address, base).put(PATH, content="error", headers={"Origin": base})
    assert found.status_code == 200
    assert log.level == "error"
