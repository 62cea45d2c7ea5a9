"""How a writer encodes values: its serializer, bound to the stream when the writer is opened."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from sarit.client.core.deadline import Once
from sarit.client.session.blocking_calls import off_loop
from sarit.client.streams import properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.session.session import Session
    from sarit.core.names import StreamName
    from sarit.serializers.protocols import Serializer

T = TypeVar("T")


class Encoding(Generic[T]):
    """The serializer of one stream's writers."""

    def __init__(self, session: Session, stream: StreamName, serializer: Serializer[T]) -> None:
        self._session = session
        self._stream = stream
        self._serializer = serializer
        self._bound: Once[Callable[[T], bytes]] = Once(self._bind)

    def __repr__(self) -> str:
        return f"Encoding({self._stream}, {type(self._serializer).__name__})"

    async def encoder(self) -> Callable[[T], bytes]:
        """Return the function from values to events; the first call registers or looks up the schema.

        Raises Invalid (the registry and the stream's header do not go together), Conflict (the registry refuses the
        schema), NotFound, Unavailable."""
        return await self._bound.get()

    async def _bind(self) -> Callable[[T], bytes]:
        # Imported here: a client without serializers does without this room.
        from sarit.serializers.registration import asks_registry, bound_encoder

        if not hasattr(self._serializer, "registration"):
            return self._serializer.serialize
        found = await properties.read(self._session, self._stream)
        bind = partial(bound_encoder, self._serializer, self._stream, found)
        return await off_loop(self._session, bind) if asks_registry(self._serializer) else bind()


def encoding_of(session: Session, stream: StreamName, serializer: Serializer[T] | None) -> Encoding[T] | None:
    """Return the encoding of a writer; None: it writes bytes."""
    return None if serializer is None else Encoding(session, stream, serializer)
