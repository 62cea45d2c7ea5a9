"""`sarit` whose log waits 1.5 s at each sync while the file that SARIT_TEST_SLOW names exists.

Run `python node_with_slow_syncs.py standalone …`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sarit.cli.main import main
from sarit.env.real_files import RealFile

SYNC_SECONDS = 1.5

if __name__ == "__main__":
    slow, durably = Path(os.environ["SARIT_TEST_SLOW"]), RealFile.pwrite_durably

    def pwrite_durably(file, parts, offset):
        if slow.exists():
            time.sleep(SYNC_SECONDS)
        return durably(file, parts, offset)

    RealFile.pwrite_durably = pwrite_durably
    main()
