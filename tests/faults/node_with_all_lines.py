"""`sarit` whose node logs each of many like lines: tests count them.

Run `python node_with_all_lines.py standalone …`."""

from __future__ import annotations

import sarit.process.observation.logs
from sarit.cli.main import main

ALL_LINES = 1 << 30

if __name__ == "__main__":
    sarit.process.observation.logs.MAX_ALIKE_LOG_LINES = ALL_LINES
    main()
