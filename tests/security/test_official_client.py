"""The official Python client, unchanged, with a user and password, and with TLS."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sarit.cli.dev_ca import make_certificates
from sarit.core.errors import Invalid
from sarit.process.security import Security
from tests.limits import HANG_SECONDS
from tests.security.running import PASSWORD, secured, write_files

_TOKEN_SECONDS = 30
PROGRAM = Path(__file__).with_name("official_client.py")
RENEWING = Path(__file__).with_name("official_renewal.py")


async def _run(*arguments: str, program: Path = PROGRAM) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
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


@pytest.mark.long
def test_official_reader_and_writer_go_on_after_their_tokens_expired(tmp_path):
    async def main() -> None:
        config = replace(write_files(tmp_path), token_seconds=_TOKEN_SECONDS)
        async with secured(tmp_path, config) as node:
            seconds = str(_TOKEN_SECONDS + 15)
            code, output = await _run(node.address, "root", PASSWORD, seconds, program=RENEWING)
            assert code == 0, output
            written, read = output.split()[-2:]
            assert int(written) == int(read) > _TOKEN_SECONDS

    asyncio.run(main())


@pytest.mark.parametrize(("mode", "refused"), [(0o600, False), (0o640, os.getuid() != 0), (0o644, True)])
def test_token_keys_are_for_their_owner_or_for_a_group_of_root(tmp_path, mode, refused):
    config = write_files(tmp_path)
    Path(config.token_keys).chmod(mode)
    if refused:
        with pytest.raises(Invalid, match="can be read by others"):
            Security(config)
    else:
        Security(config)
