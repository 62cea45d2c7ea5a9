"""Types of what writers write and readers read: bytes, unless a serializer says otherwise.

Type checkers know defaults of type variables before the oldest Python that Sarit runs on; they bring typing_extensions
themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from sarit.core.envelope import Envelope

    V = TypeVar("V", default=bytes)
    W = TypeVar("W", default=bytes | str | Envelope)
else:
    from typing import TypeVar

    V = TypeVar("V")
    W = TypeVar("W")

__all__ = ["V", "W"]
