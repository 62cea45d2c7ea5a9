"""The rpcs of the service between the two installations of a link, apart from those that every process knows."""

from __future__ import annotations

from typing import Final

from sarit.rpc.generated import mirror_pb2
from sarit.rpc.methods import Methods

MIRROR: Final = Methods(mirror_pb2.DESCRIPTOR.services_by_name["MirrorService"])
# Who may begin mirrors, or write into them, sends much.
WIDE: Final = frozenset(("mirrorBegin", "mirrorWrite"))
