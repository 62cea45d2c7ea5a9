"""The one error of the wire protocol."""

from __future__ import annotations

from sarit.core.errors import Invalid


class ProtocolError(Invalid):
    """Raised for bytes, or a command to encode, that break the wire protocol: the connection cannot go on."""
