"""Options on traces, of every command that serves."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.option_types import Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cli.options import Command

_DEFAULT_RATIO = 0.01


def _check() -> Callable[[str], object]:
    from sarit.env.traces import parse_traces

    return lambda text: parse_traces(text, _DEFAULT_RATIO)


def trace_options(command: Command) -> Command:
    """`--traces` and `--trace-ratio`; the command gets one argument `traces`, a `TraceSettings` or None."""

    @functools.wraps(command)
    def call(traces: str | None, trace_ratio: float, **options: Any) -> Any:
        from sarit.env.traces import parse_traces

        return command(traces=parse_traces(traces, trace_ratio) if traces is not None else None, **options)

    found: Any = call
    for option in (
        click.option(
            "--trace-ratio",
            type=click.FloatRange(0, 1, min_open=True),
            default=_DEFAULT_RATIO,
            show_default=True,
            help="Which part of the appends, reads and calls is traced, with --traces.",
        ),
        click.option(
            "--traces",
            type=Text(_check),
            metavar="otlp=URL",
            help="Send traces by OpenTelemetry's OTLP over HTTP, as otlp=http://HOST:4318.  Needs sarit[traces].  "
            "[default: none]",
        ),
    ):
        found = option(found)
    result: Command = found
    return result
