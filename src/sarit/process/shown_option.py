"""An option of a process as an operator may see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownOption:
    """An option of this process as it may be shown: its value without secrets, and where it is from."""

    option: str
    value: str
    origin: str

    def __str__(self) -> str:
        return f"{self.option}={self.value} ({self.origin})"
