"""`sarit doctor`: would a process start here, and serve well?"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.config import for_option, meant_command, parse
from sarit.cli.options import format_option, http_port_of, registry_of
from sarit.cli.process_options import log_in_at_zookeeper
from sarit.cli.security_options import security_of
from sarit.core.extras import require

if TYPE_CHECKING:
    from sarit.ops.doctor import Finding, Plan

_COLORS = {"OK": "green", "WARN": "yellow", "FAIL": "red"}


@click.command(context_settings={"ignore_unknown_options": True})
@for_option
@format_option
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def doctor(command: str | None, output: str, options: tuple[str, ...]) -> None:
    """Examine this machine for a process that is to start here, or runs here.

    OPTIONS are those of the process, as --data-dir DIR or --config FILE; its variables count, too.  Each line is OK,
    WARN or FAIL, and says what to do.  Ends with code 1 if one is FAIL.  Writes at most probes, which it deletes.
    """
    name = command or meant_command(options)
    if command is None and os.environ.get("SARIT_CLUSTER"):
        click.echo(f"sarit: SARIT_CLUSTER is set, examined for `sarit {name}`: --for names another process", err=True)
    require("node" if name == "standalone" else "cluster", "`sarit doctor`")
    ctx = parse(name, list(options), required=True)
    log_in_at_zookeeper(ctx.params["zookeeper_auth"])
    plan = _plan_of_node(ctx.params) if name == "standalone" else _plan_of_cluster(name, ctx.params)
    found = asyncio.run(_examine(plan, as_json=output == "json"))
    if output == "json":
        click.echo(json.dumps([asdict(finding) for finding in found]))
    if any(finding.level == "FAIL" for finding in found):
        sys.exit(1)


async def _examine(plan: Plan, *, as_json: bool) -> list[Finding]:
    from sarit.env.real import real_env
    from sarit.ops.doctor import examine

    found = []
    async for finding in examine(plan, real_env()):
        found.append(finding)
        if not as_json:
            click.echo(f"{click.style(f'{finding.level:<4}', _COLORS[finding.level])}  {finding.check}: {finding.text}")
            if finding.advice:
                click.echo(f"      {finding.advice}")
    return found


def _plan_of_node(given: dict[str, Any]) -> Plan:
    from sarit.ops.doctor import Plan, ports_of
    from sarit.process.settings import NodeConfig, default_processes

    config = NodeConfig(
        data_dir=str(Path(given["data_dir"])),
        host=given["host"],
        controller_port=given["controller_port"],
        store_port=given["store_port"],
        containers=given["containers"],
        storage_url=given["storage"],
        index_url=given["index_storage"],
        log_url=given["log"],
        memory_bytes=given["memory"],
        processes=given["processes"] or default_processes(os.cpu_count() or 1, given["containers"]),
        http_port=http_port_of(given["http_port"]),
        registry=registry_of(given["registry"], given["registry_port"]),
        one_port=given["one_port"],
        advertised=given["advertise"],
        security=security_of(given),
    ).validated()
    return Plan(config, ports_of(config), tls=_tls_of(given))


def _plan_of_cluster(name: str, given: dict[str, Any]) -> Plan:
    from sarit.cluster.settings import parse_cluster
    from sarit.ops.doctor import GRPC, HTTP, WIRE, Plan, Port
    from sarit.process.settings import NodeConfig

    http = http_port_of(given["http_port"])
    memory, security = given.get("memory"), security_of(given)
    config = NodeConfig("/", given["host"], memory_bytes=memory, advertised=given["advertise"], security=security)
    ports = [Port("--port", given["port"], WIRE if name == "store" else GRPC), Port("--http-port", http or 0, HTTP)]
    if (registry := registry_of(given.get("registry", "off"), given.get("registry_port", 0))) is not None:
        ports.append(Port("--registry-port", registry.port or 0, HTTP))
    return Plan(config, [port for port in ports if port.number], parse_cluster(given["cluster"]), _tls_of(given))


def _tls_of(given: dict[str, Any]) -> tuple[str, str] | None:
    certificate, key = given["tls_cert"], given["tls_key"]
    return (str(certificate), str(key)) if certificate is not None and key is not None else None
