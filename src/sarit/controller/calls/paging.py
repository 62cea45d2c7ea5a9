"""Pages of names.

Clients ask until a page is *empty* and never look at the token to stop.  The token of a page is therefore its last
name, and an empty page gives back the token it was asked with; it is always set, since some clients need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence


def token(names: Sequence[str], asked: str) -> pb.ContinuationToken:
    """The token to send with a page of names."""
    return pb.ContinuationToken(token=names[-1] if names else asked)
