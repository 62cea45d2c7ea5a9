"""The services of the controller for grpclib, each composed of families of calls.

Every rpc of controller.proto and sarit.proto is served by the method of that name in exactly one family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message_factory import GetMessageClass
from grpclib.const import Cardinality, Handler

from sarit.rpc.generated import controller_pb2, sarit_pb2
from sarit.rpc.handlers import rpc_handler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import ServiceDescriptor

    from sarit.rpc.handlers import AccessCheck
    from sarit.rpc.request_limiter import RequestLimiter

PRAVEGA: Final = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]
SARIT: Final = sarit_pb2.DESCRIPTOR.services_by_name["SaritService"]


class Service:
    """A service object of a grpclib server: `service` describes it."""

    def __init__(
        self,
        service: ServiceDescriptor,
        families: Sequence[object],
        limiter: RequestLimiter,
        access: AccessCheck | None = None,
    ) -> None:
        self._mapping = {
            f"/{service.full_name}/{method.name}": Handler(
                rpc_handler(_method(families, method.name), limiter, access),
                Cardinality.UNARY_UNARY,
                GetMessageClass(method.input_type),
                GetMessageClass(method.output_type),
            )
            for method in service.methods
        }

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers by path: grpclib calls this."""
        return self._mapping


def _method(families: Sequence[object], name: str) -> Any:
    found = [getattr(family, name) for family in families if hasattr(family, name)]
    assert len(found) == 1, f"rpc {name} is served by {len(found)} families"
    return found[0]
