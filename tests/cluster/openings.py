"""What the logs of a cluster's processes say about containers that were assigned and opened, in seconds."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.processes import RunningCluster

_STAMP = r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(?P<ms>\d{3}) INFO "
_ASSIGNED = re.compile(_STAMP + r"sarit\.coordination: map \d+: container \d+ goes", re.MULTILINE)
_OPENED = re.compile(_STAMP + r"sarit\.store: container \d+: opened in (?P<seconds>[\d.]+) s \((?P<phases>[^)]*)\)")
_CLOSED = re.compile(_STAMP + r"sarit\.store: container \d+: closed in (?P<seconds>[\d.]+) s \((?P<phases>[^)]*)\)")


class Openings:
    """Reads the logs from where it stopped the last time."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster

    def since(self, moment: float) -> str:
        """When containers were assigned and opened, in seconds after a moment of time.time(); the slowest phases."""
        text = self._cluster.log()
        assigned = [at for at, _ in _found(_ASSIGNED, text) if at > moment - 0.001]
        opened = [(at, match) for at, match in _found(_OPENED, text) if at > moment - 0.001]
        closed = [(at, match) for at, match in _found(_CLOSED, text) if at > moment - 0.001]
        slowest: dict[str, float] = {}
        for _, match in (*closed, *opened):
            for part in match["phases"].split(", "):
                name, _, seconds = part.rpartition(" ")
                slowest[name] = max(slowest.get(name, 0.0), float(seconds))
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in slowest.items() if seconds >= 0.05)
        return (
            f"assigned after {_span([at - moment for at in assigned])}, opened after "
            f"{_span([at - moment for at, _ in opened])}, each in {_each(opened)}"
            + (f", closed in {_each(closed)}" if closed else "")
            + (f" (at most: {phases})" if phases else "")
        )


def _found(pattern: re.Pattern[str], text: str) -> list[tuple[float, re.Match[str]]]:
    return [
        (time.mktime(time.strptime(match["at"], "%Y-%m-%d %H:%M:%S")) + int(match["ms"]) / 1000, match)
        for match in pattern.finditer(text)
    ]


def _span(seconds: list[float]) -> str:
    return f"{min(seconds):.2f}-{max(seconds):.2f}" if seconds else "-"


def _each(found: list[tuple[float, re.Match[str]]]) -> str:
    return _span([float(match["seconds"]) for _, match in found])
