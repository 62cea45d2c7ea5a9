"""One scenario in a process of its own: `python -m tests.interop.scenario THEME.NAME HOST:PORT SCOPE NOTES`.

The client's runtime may abort when the interpreter ends, so a scenario prints `passed THEME.NAME` and leaves by
`os._exit`; what went wrong is an assertion's traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from tests.interop.scenarios.tools import Place


def main() -> None:
    name, endpoint, scope, notes = sys.argv[1:]
    theme, _, function = name.partition(".")
    scenario = getattr(importlib.import_module(f"tests.interop.scenarios.{theme}"), function)
    place = Place(endpoint, scope, Path(notes))
    place.manager().create_scope(scope)
    scenario(place)
    print(f"passed {name}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
