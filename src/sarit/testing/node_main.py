"""The process of a node for tests: the command `sarit`, which ends when the process that started it does.

That one may be killed, and then nobody else would end the node and delete its data.  Standard input is a pipe from it;
the first argument is the directory to delete.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from functools import partial


def _end_with_tests(directory: str) -> None:
    while os.read(0, 1):
        pass
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=partial(_end_with_tests, sys.argv.pop(1)), daemon=True).start()
    from sarit.cli.entry import main

    main()
