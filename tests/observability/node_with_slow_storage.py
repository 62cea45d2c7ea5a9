"""`sarit` whose long-term storage takes 5 s for each read while the file that SARIT_TEST_SLOW names exists.

Run `python node_with_slow_storage.py standalone …`."""

from __future__ import annotations

import asyncio
import os

from sarit.cli.main import main
from sarit.storage.metered_storage import MeteredStorage

READ_SECONDS = 5.0

if __name__ == "__main__":
    slow, plain = os.environ["SARIT_TEST_SLOW"], MeteredStorage.read

    async def read(storage, name, offset, length, check=None):
        if os.access(slow, os.F_OK):
            await asyncio.sleep(READ_SECONDS)
        return await plain(storage, name, offset, length, check)

    MeteredStorage.read = read
    main()
