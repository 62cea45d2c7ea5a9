"""`sarit standalone --profile edge`: a small node, for a small machine at the edge of the network.

The option changes defaults alone, so a flag, a variable or a file wins over it.  What has no option of its own, as the
size of log files, is of the profile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from sarit.cli.configured_commands import PROFILE

if TYPE_CHECKING:
    from sarit.cli.options import Command
    from sarit.process.settings import NodeConfig

_EDGE: Final = "edge"
_DEFAULTS: Final = {
    "containers": "1",
    "memory": "64M",
    "http_port": "off",
    "scrub": "256K",
}


def profile_option(command: Command) -> Command:
    """Add `--profile`, which must be seen before the options whose defaults it changes."""
    made: Any = click.option(
        "--profile",
        type=click.Choice([_EDGE]),
        is_eager=True,
        callback=_change_defaults,
        help="edge: for a small machine: 1 container, 64M of memory, small logs, no HTTP port, a slow scrub, "
        "unless they are given.  The number of containers is fixed when the data directory is created: "
        "with an older one give its number.",
    )(command)
    result: Command = made
    return result


def with_profile(config: NodeConfig, profile: str | None) -> NodeConfig:
    """Return the settings of a node, with what the profile chooses and no option does."""
    if profile is None:
        return config
    from sarit.store.limits import MIN_LOG_FILE_BYTES

    return replace(config, small=True, limits=replace(config.limits, log_file_bytes=MIN_LOG_FILE_BYTES))


def _change_defaults(ctx: click.Context, _param: click.Parameter, profile: str | None) -> str | None:
    if profile is not None:
        ctx.meta[PROFILE] = True
        ctx.default_map = {**_DEFAULTS, **(ctx.default_map or {})}
    return profile
