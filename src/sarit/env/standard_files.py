"""Standard input, output and error of a process that was started without some of them.

A shell closes them by `<&-` and `>&-`, and some starters of daemons close all three.  Then the next files that are
opened get the descriptors 0 to 2: the event loop, a socket, a file of data.  A library's message on standard error
would be written into that file, and the interpreter closes the descriptor when it ends, while it may still be in use.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_standard_files() -> None:
    """Open /dev/null in the place of each standard file that is closed.  Call it before anything else is opened."""
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:  # a lower descriptor was free
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
