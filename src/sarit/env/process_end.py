"""How a process ends that has loaded libraries with threads of their own.

obstore, SlateDB and hdfs-native call Python from their threads whenever an answer comes.  A thread that does so while
the interpreter ends aborts the process: on a busy machine one command in twenty ended by SIGABRT, with all its work
done.  So where one of them is loaded the process ends without ending the interpreter.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import Final, NoReturn

_WITH_THREADS: Final = ("obstore", "slatedb", "hdfs_native")


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
