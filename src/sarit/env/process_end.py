"""How a process ends that has loaded libraries with threads of their own.

obstore, SlateDB and hdfs-native call Python from their threads whenever an answer comes.  Arrow reads batches that
Python makes on its own threads, and releases the maker there a moment after the last batch was used; nothing waits for
these threads.  A thread that calls Python while the interpreter ends aborts the process: on a busy machine one command
in twenty ended by SIGABRT, with all its work done.  So where one of these libraries is loaded the process ends without
ending the interpreter.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import Final, NoReturn

_WITH_THREADS: Final = ("obstore", "slatedb", "hdfs_native", "pyarrow")


def end_process(code: int) -> NoReturn:
    """End this process after the functions registered with `atexit`; output and log lines are written first."""
    if any(name in sys.modules for name in _WITH_THREADS):
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the reader of the output has closed it
                if stream is not None:
                    stream.flush()
        os._exit(code)
    sys.exit(code)
