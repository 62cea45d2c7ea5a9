"""`sarit standalone --dev`: a node to try things with, which leaves nothing behind.

The option changes defaults alone, so a flag, a variable or a file that is named wins over it.  The file in /etc is of
the node of this machine, and is not read.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from sarit.cli.configured_commands import DEV, OneStart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.cli.options import Command
    from sarit.process.settings import NodeConfig

_DEFAULTS: Final = {
    "controller_port": "0",
    "store_port": "0",
    "http_port": "0",
    "registry_port": "0",
    "log_level": "warning",
}
# Options that would keep data elsewhere, which would outlive the deleted directory.
_ELSEWHERE: Final = ("storage", "index_storage", "log")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def dev_option(command: Command) -> Command:
    """Add `--dev`, which must be seen before the options whose defaults it changes."""
    made: Any = click.option(
        "--dev",
        cls=OneStart,
        is_flag=True,
        is_eager=True,
        callback=_change_defaults,
        help="To try things: a temporary directory, deleted at the end (or --data-dir, which stays), free ports, small "
        "logs, and only warnings are logged.  Prints the line that tells clients the address.  On the command line "
        "alone.",
    )(command)
    result: Command = made
    return result


def _change_defaults(ctx: click.Context, _param: click.Parameter, dev: bool) -> bool:
    if dev:
        ctx.meta[DEV] = True
        ctx.default_map = {**_DEFAULTS, **(ctx.default_map or {})}
    return dev


@contextmanager
def dev_settings(config: NodeConfig, ctx: click.Context) -> Iterator[NodeConfig]:
    """Return the settings of a node to try things with, whose directory is deleted after the block if it is temporary.

    Raises UsageError: its data would be left elsewhere."""
    from sarit.store.limits import MIN_LOG_FILE_BYTES

    small = replace(config.limits, log_file_bytes=MIN_LOG_FILE_BYTES)
    config = replace(config, dev=True, limits=small)
    if ctx.get_parameter_source("data_dir") is not ParameterSource.DEFAULT:
        yield config
        return
    for name in _ELSEWHERE:
        if ctx.params[name] is not None:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option}: what --dev keeps there stays when its directory is deleted; give "
                                   "--data-dir, too")  # fmt: skip
    # Until the loop handles it: the default would end the process and leave the directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = tempfile.mkdtemp(prefix="sarit-dev-")
    try:
        yield replace(config, data_dir=directory)
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(directory, ignore_errors=True)
    with suppress(OSError):  # nobody reads it
        click.echo(f"deleted {directory} with all of its data")
