"""The official Python client, unchanged, with a user and password, and with TLS."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sarit.cli.dev_ca import make_certificates
from tests.limits import HANG_SECONDS
from tests.security.running import PASSWORD, secured, write_files

PROGRAM = Path(__file__).with_name("official_client.py")


async def _run(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(HANG_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, output.decode()


@pytest.mark.parametrize("tls", [False, True])
def test_official_client_writes_commits_and_reads(tmp_path, tls):
    async def main() -> None:
        config, ca = write_files(tmp_path), None
        if tls:
            files = {name: str(path) for name, path in make_certificates(tmp_path / "ca", (), 1).items()}
            ca = files["ca"]
            config = replace(config, certificate=files["server"], key=files["server key"], ca=ca)
        async with secured(tmp_path, config, ca) as node:
            await node.grant(
                ("user:alice", "prn::/scope:official", "READ_UPDATE"),
                ("user:alice", "prn::/scope:official/*", "READ_UPDATE"),
            )
            code, output = await _run(node.address, "alice", PASSWORD, *([ca] if ca else []))
            assert (code, output.split()[-1:]) == (0, ["101"]), output

    asyncio.run(main())


def test_official_client_with_a_wrong_password_is_refused_at_once(tmp_path):
    async def main() -> None:
        async with secured(tmp_path, write_files(tmp_path)) as node:
            code, output = await _run(node.address, "alice", "wrong password")
            assert code
            assert "wrong" in output

    asyncio.run(main())
