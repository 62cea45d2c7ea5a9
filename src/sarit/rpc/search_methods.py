"""The rpcs of full-text search and of continuous queries, apart from those that every process knows."""

from __future__ import annotations

from typing import Final

from sarit.rpc.generated import search_pb2
from sarit.rpc.methods import Methods

SEARCH: Final = Methods(search_pb2.DESCRIPTOR.services_by_name["SearchService"])
