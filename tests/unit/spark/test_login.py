"""How a query logs in: options before the environment of the driver, and no secret in any text."""

from __future__ import annotations

import pickle

import pytest

from sarit.client.core.login import BearerToken, Tls, UserPassword
from sarit.core.errors import Invalid
from sarit.spark.login import credentials_of, tls_of
from sarit.spark.options import Target
from sarit.spark.sink.options import parse_write
from sarit.spark.source.options import parse_read

SECRET = "hidden-secret"
AMBIENT = {"SARIT_USER": "ann", "SARIT_PASSWORD": SECRET}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\nmore\n")
    return str(path)


def test_options_win_over_the_environment(file):
    assert credentials_of({"user": "bob", "passwordFile": file}.get, AMBIENT) == UserPassword("bob", SECRET)
    assert credentials_of({"user": "bob"}.get, AMBIENT) == UserPassword("bob", SECRET)
    assert credentials_of({}.get, AMBIENT) == UserPassword("ann", SECRET)
    assert credentials_of({}.get, {}) is None
    found = credentials_of({"tokenFile": file}.get, AMBIENT)
    assert isinstance(found, BearerToken)
    assert found.authorization() == f"Bearer {SECRET}"


def test_ca_by_option_environment_or_address():
    assert tls_of({"caFile": "/a"}.get, "h:1", {"SARIT_CA_FILE": "/b"}) == Tls("/a")
    assert tls_of({}.get, "h:1", {"SARIT_CA_FILE": "/b"}) == Tls("/b")
    assert tls_of({}.get, "tls://h:1", {}) == Tls()
    assert tls_of({}.get, "h:1", {}) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenFile": "FILE", "user": "bob"}, "contradict"),
        ({"passwordFile": "FILE"}, "needs option user"),
        ({"user": "bob"}, "needs option passwordFile"),
        ({"user": "bob", "passwordFile": "/nowhere"}, "option passwordFile: /nowhere cannot be read"),
    ],
)
def test_options_that_cannot_be_used_are_refused(file, options, message):
    with pytest.raises(Invalid, match=message):
        credentials_of({name: file if value == "FILE" else value for name, value in options.items()}.get, {})


@pytest.mark.parametrize("parse", [parse_read, parse_write])
@pytest.mark.parametrize("name", ["password", "Token"])
def test_secret_as_an_option_is_refused_and_not_repeated(parse, name):
    with pytest.raises(Invalid, match=f"{name.lower()}File") as raised:
        parse({"stream": "s/t", name: SECRET}, "h:1")
    assert SECRET not in str(raised.value)


def test_target_reaches_tasks_and_shows_no_secret(file, monkeypatch):
    for variable in ("SARIT_USER", "SARIT_TOKEN", "SARIT_TOKEN_FILE", "SARIT_CA_FILE"):
        monkeypatch.delenv(variable, raising=False)
    for given in ({"user": "bob", "passwordFile": file}, {"tokenFile": file}):
        options = parse_read({"stream": "s/t", "caFile": "/ca", **given}, "h:1")
        assert SECRET not in repr(options)
        there = pickle.loads(pickle.dumps(options.target))
        assert there == options.target
        assert hash(there) == hash(options.target), "tasks of a process share a client by it"
        assert there != Target("h:1", tls=Tls("/ca"))
