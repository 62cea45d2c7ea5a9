"""The line that a process logs once it serves: its version, what it recovered, its limits, and what was chosen."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from sarit.core.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Clock
    from sarit.process.settings import NodeConfig
    from sarit.process.shown_option import ShownOption

DEFAULT = "default"


class StartLine:
    """Counts the time from when it is made."""

    def __init__(self, clock: Clock, options: Sequence[ShownOption]) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._options = options

    def text(self, what: str, *facts: str) -> str:
        """`what`: the process.  `facts`: what was recovered, and limits."""
        chosen = ", ".join(str(option) for option in self._options if option.origin != DEFAULT)
        parts = [*facts, f"options: {chosen or 'all by default'}"]
        seconds = self._clock.monotonic() - self._began
        return f"sarit {version('sarit')} {what} serves after {seconds:.2f} s: {'; '.join(parts)}"


def limit_fact(config: NodeConfig) -> str:
    """Memory, connections and open files."""
    facts = [f"memory {config.memory_bytes // MIB}M"] if config.memory_bytes is not None else []
    facts.append(f"{config.max_connections} connections to a store")
    facts.append(f"{config.max_api_connections} to a controller")
    if config.open_files is not None:
        facts.append(f"{config.open_files} open files")
    return "limits: " + ", ".join(facts)


def recovery_fact(containers: int, seconds: float, frames: int, replayed_bytes: int, damaged: int) -> str:
    """Return what was recovered, and how long it took."""
    fact = f"recovered {containers - damaged} of {containers} containers in {seconds:.2f} s"
    return f"{fact} ({frames} frames and {replayed_bytes} bytes replayed)"
