"""The search for secrets in logs finds each kind of them."""

from __future__ import annotations

import logging

import pytest

from sarit.security.login import basic
from sarit.security.permissions import Permission
from sarit.security.tokens import TokenKeys
from tests.security.running import PASSWORD
from tests.security.secrets_in_logs import Kept, leaks

TOKEN = TokenKeys([b"k" * 64]).sign({"prn::/scope:app/stream:s": Permission.READ}, 0, 60)


@pytest.mark.parametrize(
    "secret", [PASSWORD, basic("alice", PASSWORD), basic("alice", "another one"), TOKEN, f"Bearer {TOKEN}", "k" * 64]
)
def test_secret_in_a_line_is_found(secret):
    logger, kept = logging.getLogger("sarit.leaky"), Kept()
    logger.addHandler(kept)
    logger.propagate = False
    try:
        raise ValueError(f"a message with {secret} in it")
    except ValueError:
        logger.exception("failed")
    logger.removeHandler(kept)
    assert leaks(kept.text(), ["k" * 64])


def test_ordinary_lines_are_no_secrets():
    assert not leaks("a log-in from 127.0.0.1 was refused: user or password is wrong\nbasic things", ["k" * 64, ""])
