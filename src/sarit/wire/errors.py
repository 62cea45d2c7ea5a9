"""The one error of the wire protocol."""

from __future__ import annotations

from sarit.core.errors import Invalid


class ProtocolError(Invalid):
    """The bytes (or a command given for encoding) break the wire protocol: the connection cannot go on."""
