"""The schema registry of a cluster: two controllers give ids at once, and one of them is killed on the way."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests import secured
from tests.cluster.processes import RunningCluster
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.long

REGISTRATIONS = 1000
RETRY_SECONDS = 0.05


def schema(number: int) -> str:
    return json.dumps({"type": "enum", "name": f"E{number}", "symbols": ["X"]})


class Registrar:
    """Registers schemas one after the other at one controller, and at the other one while the first does not answer."""

    def __init__(self, addresses: list[str], name: str) -> None:
        self.ids: dict[int, int] = {}
        self.done = threading.Event()
        self.repeated = 0
        self._addresses = addresses
        self._name = name
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Registrar:
        self._thread.start()
        return self

    def wait(self) -> None:
        self._thread.join(10 * HANG_SECONDS)
        assert self.done.is_set(), f"{self._name} stopped after {len(self.ids)} registrations"

    def _run(self) -> None:
        for number in range(REGISTRATIONS):
            # Every schema is raced for; the subjects of half of them are, too.
            subject = f"s{number}" if number % 2 else f"{self._name}-{number}"
            self.ids[number] = self._until_answered(subject, {"schema": schema(number)})
        self.done.set()

    def _until_answered(self, subject: str, body: dict[str, Any]) -> int:
        end = time.monotonic() + HANG_SECONDS
        while True:
            for address in self._addresses:
                try:
                    status, answer = ask(address, "POST", f"/subjects/{subject}/versions", body)
                except (OSError, http.client.HTTPException):
                    status, answer = 503, None
                if status == 200:
                    return int(answer["id"])
                assert status == 503, f"{subject}: {status} {answer}"
                self.repeated += 1
            assert time.monotonic() < end, f"{subject}: no controller answers"
            time.sleep(RETRY_SECONDS)


def ask(address: str, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=HANG_SECONDS)
    try:
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, f"/registry/confluent{path}", content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


def pairs(registrars: Iterable[Registrar]) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """The ids that were shown for each schema, and the schemas of each id."""
    by_schema, by_id = defaultdict(set), defaultdict(set)
    for registrar in registrars:
        for number, id in registrar.ids.items():
            by_schema[number].add(id)
            by_id[id].add(number)
    return by_schema, by_id


@pytest.mark.skipif(secured.ON, reason="it asks without a log-in")
def test_two_controllers_give_one_id_to_a_schema_while_one_is_killed(tmp_path):
    environ = {"SARIT_REGISTRY": "on", "SARIT_REGISTRY_PORT": "off"}
    with RunningCluster(
        tmp_path / "cluster", stores=2, controllers=2, containers=4, http=True, environ=environ
    ) as cluster:
        first, second = (controller.http for controller in cluster.controllers)
        registrars = [Registrar([first, second], "a").start(), Registrar([second, first], "b").start()]
        end = time.monotonic() + HANG_SECONDS
        while len(registrars[1].ids) < REGISTRATIONS // 3:
            assert time.monotonic() < end
            time.sleep(RETRY_SECONDS)
        cluster.controllers[1].kill()
        cluster.controllers[1].begin().wait()
        for registrar in registrars:
            registrar.wait()
        by_schema, by_id = pairs(registrars)
        assert len(by_schema) == REGISTRATIONS
        assert [number for number, ids in by_schema.items() if len(ids) > 1] == [], "schemas with two ids"
        assert [id for id, numbers in by_id.items() if len(numbers) > 1] == [], "ids of two schemas"
        # Both controllers tell the same of everything that was answered.
        for address in (first, second):
            for number, (id,) in by_schema.items():
                if number % 50 == 0:
                    status, answer = ask(address, "GET", f"/schemas/ids/{id}")
                    assert (status, json.loads(answer["schema"])["name"]) == (200, f"E{number}")
            status, subjects = ask(address, "GET", "/subjects")
            assert status == 200
            assert len(subjects) == REGISTRATIONS // 2 * 3
        assert sum(registrar.repeated for registrar in registrars) > 0, "the kill was not felt"
