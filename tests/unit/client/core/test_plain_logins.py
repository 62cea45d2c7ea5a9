"""A password or token leaves this machine by TLS alone, unless somebody allows it in so many words."""

from __future__ import annotations

import asyncio

import pytest

from sarit.cli.top import _connection, _get
from sarit.client import aio
from sarit.client.core.login import (
    BearerToken,
    UserPassword,
    default_credentials,
    is_loopback_name,
    refuse_plain,
)
from sarit.core.errors import Invalid, Unavailable
from sarit.spark.login import credentials_of

PASSWORD = UserPassword("alice", "hidden-secret")
TOKEN = BearerToken("hidden-secret")


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("LOCALHOST", True), ("::1", True),
        ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("0.0.0.0", False), ("::", False), ("::ffff:10.0.0.1", False),
        ("localhost.example.com", False), ("node1", False), ("127.0.0.1.example.com", False), ("", False),
    ],
)  # fmt: skip
def test_what_is_this_machine(host, here):
    assert is_loopback_name(host) == here


@pytest.mark.parametrize(("credentials", "what"), [(PASSWORD, "password"), (TOKEN, "token")])
@pytest.mark.parametrize("address", ["192.0.2.1:9090", "tcp://192.0.2.1", "127.0.0.1:9,node1.example.com:9"])
def test_log_in_without_tls_at_another_machine_is_refused_before_anything_is_sent(credentials, what, address):
    with pytest.raises(Invalid, match=f"the {what} would be sent to .* in clear text: use TLS") as refused:
        asyncio.run(aio.connect(address, credentials=credentials, retry_timeout=0))
    assert "hidden-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("credentials", "environ"),
    [
        (UserPassword("alice", "x", plain=True), {}), (BearerToken("x", plain=True), {}), (None, {}),
        (PASSWORD, {"SARIT_PLAIN_PASSWORDS": "1"}), (TOKEN, {"SARIT_PLAIN_PASSWORDS": "true"}),
    ],
)  # fmt: skip
def test_what_is_allowed(credentials, environ):
    refuse_plain(credentials, ["node1"], environ)


@pytest.mark.parametrize("value", ["", "0", "false", "no", "2"])
def test_other_values_of_the_variable_allow_nothing(value):
    with pytest.raises(Invalid):
        refuse_plain(PASSWORD, ["node1"], {"SARIT_PLAIN_PASSWORDS": value})


def test_this_machine_needs_no_tls():
    with pytest.raises(Unavailable):
        asyncio.run(aio.connect("127.0.0.1:1", credentials=PASSWORD, retry_timeout=0))


def test_environment_of_a_spark_driver_holds_for_its_tasks():
    environ = {"SARIT_PASSWORD": "x", "SARIT_PLAIN_PASSWORDS": "1"}
    assert credentials_of({"user": "bob"}.get, environ) == UserPassword("bob", "x", plain=True)
    assert default_credentials({"SARIT_TOKEN": "t", "SARIT_PLAIN_PASSWORDS": "1"}) == BearerToken("t", plain=True)


def test_top_sends_no_password_in_clear_text(monkeypatch):
    monkeypatch.setenv("SARIT_USER", "alice")
    monkeypatch.setenv("SARIT_PASSWORD", "x")
    monkeypatch.delenv("SARIT_CA_FILE", raising=False)
    with pytest.raises(Invalid, match="in clear text"):
        _get(_connection("192.0.2.1:9091"), "/healthz")
