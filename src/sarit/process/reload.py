"""SIGHUP: read the options again, and take over what a running process can.

The file of options is what can have changed: flags and variables of a process do not.  A file that is wrong changes
nothing.  One line in the log says what was changed, and what needs a restart.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import pickle
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import SaritError
from sarit.process.observation.logs import LEVELS, LogSettings, current_logs, set_up_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.controller.times import Times
    from sarit.process.shown_option import ShownOption

_log = logging.getLogger("sarit.process")

# What a running process takes over, by the names of the options.
LIVE_OPTIONS: Final = frozenset(
    {
        "log-level", "log-format", "scrub", "scaling-windows", "scaling-cool-down", "retention-interval",
        "watermark-interval",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The values of LIVE_OPTIONS.  `scrub_bytes_per_second`: of all stores of the node; None: as before."""

    log: LogSettings
    times: Times
    scrub_bytes_per_second: int | None = None

    def encode(self) -> bytes:
        """Return one line without its end, for a child of this process."""
        return base64.b64encode(pickle.dumps(self))


def decode_live(line: bytes) -> LiveSettings:
    """Return the inverse of `encode`: of a parent, who is trusted."""
    # Our parent wrote it, into a pipe of ours.
    found: LiveSettings = pickle.loads(base64.b64decode(line))  # nosec B301
    return found


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options as they would be at a start now."""

    options: tuple[ShownOption, ...]
    live: LiveSettings


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences, as `memory 1G -> 2G`.  `options`: those that hold now."""

    applied: tuple[str, ...]
    need_restart: tuple[str, ...]
    options: tuple[ShownOption, ...]

    def __str__(self) -> str:
        parts = [f"changed: {', '.join(self.applied)}"] if self.applied else []
        parts += [f"needs a restart: {', '.join(self.need_restart)}"] if self.need_restart else []
        return "; ".join(parts) or "nothing has changed"


def compare_options(running: Sequence[ShownOption], found: Sequence[ShownOption]) -> Changes:
    """Compare the options of two parses, and return what a reload changes."""
    new = {option.option: option for option in found}
    applied, need_restart, options = [], [], []
    for option in running:
        after = new.get(option.option, option)
        text = f"{option.option} {option.value} -> {after.value}"
        if option.option in LIVE_OPTIONS:
            applied += [text] if after.value != option.value else []
            options.append(after)
        else:
            need_restart += [text] if after.value != option.value else []
            options.append(option)
    return Changes(tuple(applied), tuple(need_restart), tuple(options))


class Reload:
    """Until `use` is called, the process starts, and begins with the old settings."""

    def __init__(self, running: Sequence[ShownOption], read: Callable[[], ReadOptions]) -> None:
        """`running`: the options of this process.  `read`: raises SaritError, OSError with what is wrong."""
        self.options = tuple(running)
        self._apply: Callable[[LiveSettings], None] | None = None
        self._read = read

    def __repr__(self) -> str:
        return f"<Reload of {len(self.options)} options>"

    def use(self, apply: Callable[[LiveSettings], None]) -> None:
        """Have `apply` take new settings over from now on."""
        self._apply = apply

    def listen(self) -> None:
        """Reload at each SIGHUP, on the running loop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)

    def reload(self) -> None:
        """Read the options again, and take over what can be."""
        try:
            found = self._read()
        except (SaritError, OSError) as error:
            _log.error("the options are not reloaded, and the old ones hold: %s", error)
            return
        changes = compare_options(self.options, found.options)
        self.options = changes.options
        # The line is for whoever asked: it is logged while more is logged.
        quieter = LEVELS.index(found.live.log.level) > LEVELS.index(current_logs().level)
        if quieter:
            _log.warning("the options are reloaded: %s", changes)
        take_logs(found.live.log)
        if self._apply is not None:
            self._apply(found.live)
        if not quieter:
            _log.warning("the options are reloaded: %s", changes)


def take_logs(settings: LogSettings) -> None:
    """Log as `settings` say, if that is new."""
    if settings != current_logs():
        set_up_logs(settings)
