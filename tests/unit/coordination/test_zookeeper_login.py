"""How a process logs in at ZooKeeper: by a file that an option or a variable names."""

from __future__ import annotations

import os

import click
import pytest
from click.testing import CliRunner

from sarit.cli.process_options import zookeeper_option
from sarit.coordination.zookeeper_client import ZOOKEEPER_VARIABLE, login_options, make_client, open_acl
from sarit.core.errors import Invalid


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.delenv(ZOOKEEPER_VARIABLE, raising=False)
    path = tmp_path / "zookeeper-auth"
    path.write_text("sarit:hidden secret\nmore\n")
    path.chmod(0o600)
    return path


def test_file_gives_a_digest_log_in_and_nodes_for_its_user(file):
    found = login_options({ZOOKEEPER_VARIABLE: str(file)})
    assert found["auth_data"] == [("digest", "sarit:hidden secret")]
    (acl,) = found["default_acl"]
    assert (acl.id.scheme, acl.acl_list) == ("auth", ["ALL"])
    assert login_options({}) == login_options({ZOOKEEPER_VARIABLE: ""}) == {}


@pytest.mark.parametrize("text", ["", "sarit\n", ":secret\n", "sarit:\n", "\nsarit:secret\n", "sarit:\xff\n"])
def test_file_without_user_and_password_is_refused_and_not_repeated(file, text):
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(Invalid, match="--zookeeper-auth: the first line of .*zookeeper-auth is not") as refused:
        login_options({ZOOKEEPER_VARIABLE: str(file)})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("mode", "word"), [(0o644, "read"), (0o604, "read"), (0o622, "written")])
def test_file_that_others_can_read_or_write_is_refused(file, mode, word):
    file.chmod(mode)
    with pytest.raises(Invalid, match=f"--zookeeper-auth: .* can be {word} by others, who could change the cluster"):
        make_client_of(file)


def test_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(Invalid, match="--zookeeper-auth: .*missing cannot be read"):
        make_client_of(tmp_path / "missing")


def make_client_of(path):
    return login_options({ZOOKEEPER_VARIABLE: str(path)})


def test_client_of_kazoo_has_it_and_nodes_of_bookkeeper_stay_open(file, monkeypatch):
    client = make_client("127.0.0.1:1", 4.0)
    assert (client.default_acl, list(client.auth_data), open_acl(client)) == (None, [], {})
    monkeypatch.setenv(ZOOKEEPER_VARIABLE, str(file))
    client = make_client("127.0.0.1:1", 4.0)
    assert list(client.auth_data) == [("digest", "sarit:hidden secret")]
    assert [acl.id.scheme for acl in client.default_acl] == ["auth"]
    assert [acl.id.scheme for acl in open_acl(client)["acl"]] == ["world"]


@pytest.mark.parametrize("by_variable", [False, True])
def test_option_reaches_each_session_of_the_process(file, monkeypatch, by_variable):
    seen = []

    @click.command()
    @zookeeper_option
    def command() -> None:
        seen.append(os.environ.get(ZOOKEEPER_VARIABLE))

    monkeypatch.setenv(ZOOKEEPER_VARIABLE, str(file) if by_variable else "")
    monkeypatch.chdir(file.parent)
    assert CliRunner().invoke(command, [] if by_variable else ["--zookeeper-auth", file.name]).exit_code == 0
    assert seen == [str(file)]
