"""What is a secret in the logs of these tests."""

from __future__ import annotations

import base64
import logging
import re
from typing import TYPE_CHECKING

from tests.security.running import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterable

# A JWT, the header of a log-in, a hash of a password, a private key.
_SHAPES = re.compile(r"eyJ[\w-]{8,}|(?i:basic|bearer) [A-Za-z0-9+/=_.-]{12,}|\$argon2id\$v=|-----BEGIN [A-Z ]*PRIVATE")


class Kept(logging.Handler):
    """Keeps all lines, with tracebacks, at every level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self._lines.append(self.format(record))

    def text(self) -> str:
        """All of them."""
        return "\n".join(self._lines)


def leaks(text: str, signing_keys: Iterable[str] = ()) -> list[str]:
    """The secrets in a text, each by its first characters."""
    found = [match[0][:12] for match in _SHAPES.finditer(text)]
    known = (PASSWORD, base64.b64encode(PASSWORD.encode()).decode().rstrip("="), *signing_keys)
    # A key that is too short to be one is not a secret.
    return found + [secret[:12] for secret in known if len(secret) >= 8 and secret in text]
