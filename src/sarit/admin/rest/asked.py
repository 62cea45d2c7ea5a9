"""A request of the REST API, as handlers get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sarit.client.aio import Client


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the names of its path, its query, its body (None when it has none)."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any

    @property
    def scope(self) -> str:
        """The scope in the path."""
        return self.path["scopeName"]

    @property
    def stream(self) -> StreamName:
        """The stream in the path."""
        return StreamName(self.scope, self.path["streamName"])

    @property
    def group(self) -> str:
        """The reader group in the path, with its scope."""
        return f"{self.scope}/{self.path['readerGroupName']}"


Handler: TypeAlias = "Callable[[Client, Asked], Awaitable[Any]]"
