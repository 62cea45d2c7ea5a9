"""Everything that these tests log is searched for secrets."""

from __future__ import annotations

import logging

import pytest

from tests.security.secrets_in_logs import Kept, leaks


@pytest.fixture(autouse=True)
def _no_secret_in_logs(request, tmp_path):
    """Fails a test that logs a password, a token, a header of a log-in, or a key that signs tokens."""
    logger, kept = logging.getLogger("sarit"), Kept()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(kept)
    yield
    logger.removeHandler(kept)
    logger.setLevel(level)
    audit = tmp_path / "audit.jsonl"
    text = kept.text() + (audit.read_text() if audit.exists() else "")
    keys = tmp_path / "keys"
    signing = keys.read_text(errors="replace").splitlines() if keys.exists() else []
    assert not leaks(text, signing)
