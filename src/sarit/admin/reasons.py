"""What a process says of its health.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a part does not serve, or not as it should.

    `code`: one of a few words, for scripts.  `part`: of the process.  `text`: for people.  `ready`: the process should
    get requests nevertheless."""

    code: str
    part: str
    text: str
    ready: bool = False


def container_of_part(part: str) -> int | None:
    """Return the number of the container that a reason is about; None: it is about something else."""
    word, _, number = part.rpartition(" ")
    return int(number) if word.endswith("container") and number.isdecimal() else None


class HealthPort(Protocol):
    """The health of a process, answered at once, from memory."""

    def state(self) -> str:
        """`starting`, `ready` or `stopping`."""

    def reasons(self) -> list[Reason]:
        """Everything that is wrong now."""

    def details(self) -> dict[str, Any]:
        """More for `/healthz`: values that JSON has."""
