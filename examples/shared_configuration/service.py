"""A service whose settings are changed while it runs, in all its processes at once.

    python examples/shared_configuration/service.py serve app/settings
    python examples/shared_configuration/service.py set app/settings greeting '"Hello"'
    python examples/shared_configuration/service.py add app/settings limit 5

`serve` prints the settings, and again whenever they change.  `set` takes a JSON value.  `add` changes a number by so
much; however many do so at once, none is lost, as each is decided from the newest value.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import Any, Final

import sarit

DEFAULTS: Final = {"greeting": "Hi", "limit": 10}


def serve(settings: sarit.SharedConfiguration) -> None:
    """Print the settings at every change."""
    shown = None
    for values in settings.watch():
        if values != shown:
            shown = values
            print(json.dumps(values, sort_keys=True), flush=True)


def add(settings: sarit.SharedConfiguration, name: str, amount: int) -> None:
    """Change a number."""

    def change(values: dict[str, Any]) -> None:
        values[name] = values.get(name, 0) + amount

    settings.edit(change)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("serve", "set", "add"):
        command = verbs.add_parser(verb)
        command.add_argument("stream")
        if verb != "serve":
            command.add_argument("name")
            command.add_argument("value", type=json.loads)
    options = parser.parse_args()
    with (
        contextlib.suppress(KeyboardInterrupt),
        sarit.connect(options.controller, wait=60) as client,
        client.coordination.shared_configuration(options.stream, DEFAULTS) as settings,
    ):
        if options.verb == "serve":
            serve(settings)
        elif options.verb == "set":
            settings.set(options.name, options.value)
        else:
            add(settings, options.name, options.value)


if __name__ == "__main__":
    main()
