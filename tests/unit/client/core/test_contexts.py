"""Where a client without an address connects to: as a command of the CLI does."""

from __future__ import annotations

import asyncio

import click
import pytest
from click.testing import CliRunner

import sarit
from sarit import aio
from sarit.cli.options import controller_option
from sarit.client.core.contexts import Context, Contexts, choose, read_contexts, with_login
from sarit.core.errors import Invalid, NotFound

NAMES = ("SARIT_CONTROLLER", "SARIT_CONTEXT", "SARIT_USER", "SARIT_PASSWORD", "SARIT_TOKEN", "SARIT_CA_FILE")


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A user with three contexts, of which "used" is the current one."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    password = tmp_path / "password"
    password.write_text("secret\n")
    login = {"user": "ann", "password_file": str(password)}
    made = {
        "named": Context("127.0.0.1:1"),
        "used": Context("127.0.0.1:2"),
        "remote": Context("192.0.2.1:9090", login=login),
    }
    path = tmp_path / "sarit" / "contexts.toml"
    path.parent.mkdir()
    path.write_text(Contexts("used", made).encode())
    return path


@click.command()
@controller_option
def asked(controller: str) -> None:
    click.echo(controller)


ORDER = {
    "variable": ({"SARIT_CONTROLLER": "127.0.0.1:3", "SARIT_CONTEXT": "named"}, "127.0.0.1:3"),
    "named context": ({"SARIT_CONTEXT": "named"}, "127.0.0.1:1"),
    "used context": ({}, "127.0.0.1:2"),
    "empty variables": ({"SARIT_CONTROLLER": "", "SARIT_CONTEXT": ""}, "127.0.0.1:2"),
}


@pytest.mark.parametrize("case", ORDER)
def test_connect_without_an_address_asks_where_a_command_does(case, home, monkeypatch) -> None:
    variables, address = ORDER[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert CliRunner().invoke(asked, []).output.strip() == address
    assert choose().controller == address
    with pytest.raises(ConnectionError, match=f" at {address} "):
        sarit.connect(retry_timeout=0)

    async def connect() -> None:
        await aio.connect(retry_timeout=0)

    with pytest.raises(ConnectionError, match=f" at {address} "):
        asyncio.run(connect())


def test_without_contexts_it_is_the_node_of_this_machine(home) -> None:
    home.unlink()
    assert choose().controller == CliRunner().invoke(asked, []).output.strip() == "127.0.0.1:9090"


def test_address_of_the_call_wins_and_reads_no_file(home) -> None:
    home.write_text("damaged")
    with pytest.raises(ConnectionError, match=r" at 127\.0\.0\.1:4 "):
        sarit.connect("127.0.0.1:4", retry_timeout=0)
    with pytest.raises(Invalid, match="cannot be read"):
        sarit.connect()


def test_context_says_how_to_log_in(home, monkeypatch) -> None:
    """Without TLS the log-in at another machine is refused, before anything is sent."""
    monkeypatch.setenv("SARIT_CONTEXT", "remote")
    with pytest.raises(Invalid, match=r"the password would be sent to 192\.0\.2\.1 in clear text"):
        sarit.connect()
    with pytest.raises(Invalid, match=r"the token would be sent to 192\.0\.2\.1"):
        sarit.connect(credentials=sarit.BearerToken("of the call"))


def test_log_in_of_a_context_wins_over_the_environment() -> None:
    before = {"SARIT_USER": "bob", "SARIT_PASSWORD": "p", "SARIT_TOKEN": "t", "OTHER": "stays"}
    after = with_login(before, {"user": "ann", "password_file": "/f"})
    assert after == {"SARIT_USER": "ann", "SARIT_PASSWORD_FILE": "/f", "OTHER": "stays"}
    assert with_login(before, {}) == before


def test_context_that_is_not_there_is_named(home, monkeypatch) -> None:
    monkeypatch.setenv("SARIT_CONTEXT", "nmed")
    with pytest.raises(NotFound, match="SARIT_CONTEXT: there is no context 'nmed': did you mean 'named'"):
        sarit.connect()


def test_file_of_contexts_is_read_within_bounds(home) -> None:
    with home.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Invalid, match="has more than"):
        read_contexts({"XDG_CONFIG_HOME": str(home.parents[1])})
