"""The port of the schema registry: open before the process serves, and then one of all APIs."""

from __future__ import annotations

import asyncio

import httpx

from sarit.admin import health
from sarit.admin.callers import Gate
from sarit.admin.server import AdminServer
from sarit.env.real import real_env
from sarit.process.registry_role import RegistryRole
from sarit.process.registry_tables import RegistryTables
from sarit.security.audit import NoAudit
from tests.unit.admin.rest.served import FakeHealth
from tests.unit.controller.fakes import FakeTables


def test_the_port_answers_503_until_the_process_serves() -> None:
    async def run() -> None:
        role = RegistryRole("127.0.0.1", 0, real_env())
        gate = Gate()
        await role.open(AdminServer(health.routes(FakeHealth(), gate)), None)
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{role.port}") as http:
                assert (await http.get("/livez")).status_code == 200
                early = await http.get("/subjects")
                assert (early.status_code, early.headers["retry-after"]) == (503, "1")
                assert list(role.samples()) == []
                role.serve(RegistryTables(FakeTables(), "", None, NoAudit()), gate, None)
                assert (await http.get("/subjects")).json() == []
                assert (await http.get("/v1/groups")).json()["groups"] == {}
                assert (await http.get("/nothing")).json()["error_code"] == 404
                names = {name for name, _, _ in role.samples()}
                assert {"sarit_registry_requests_total", "sarit_registry_request_seconds"} <= names
        finally:
            await role.close()

    asyncio.run(run())


def test_without_a_port_it_is_on_the_http_port_alone() -> None:
    async def run() -> None:
        role = RegistryRole("127.0.0.1", None, real_env())
        gate = Gate()
        http_server, own = AdminServer([]), AdminServer([])
        await role.open(own, None)
        try:
            await http_server.start("127.0.0.1", 0)
            role.serve(RegistryTables(FakeTables(), "", None, NoAudit()), gate, http_server)
            assert (role.port, own.port) == (None, 0)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{http_server.port}") as http:
                assert (await http.get("/registry/confluent/")).json() == {}
                assert (await http.get("/registry/confluent/x")).json()["error_code"] == 404
        finally:
            await http_server.stop()
            await role.close()

    asyncio.run(run())
