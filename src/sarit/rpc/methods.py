"""The rpcs of the two services of the controller's API, by name: path, and types of request and reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.message_factory import GetMessageClass

from sarit.rpc.generated import controller_pb2, sarit_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import ServiceDescriptor


class Method(NamedTuple):
    """An rpc.  `name`: its path."""

    name: str
    request_type: Any
    reply_type: Any


class Methods:
    """The rpcs of a service, each as an attribute."""

    def __init__(self, service: ServiceDescriptor) -> None:
        self.service = service
        self._methods = {
            method.name: Method(
                f"/{service.full_name}/{method.name}",
                GetMessageClass(method.input_type),
                GetMessageClass(method.output_type),
            )
            for method in service.methods
        }

    def __getattr__(self, name: str) -> Method:
        try:
            return self._methods[name]
        except KeyError:
            raise AttributeError(f"the service has no rpc {name}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)


PRAVEGA: Final = Methods(controller_pb2.DESCRIPTOR.services_by_name["ControllerService"])
SARIT: Final = Methods(sarit_pb2.DESCRIPTOR.services_by_name["SaritService"])
