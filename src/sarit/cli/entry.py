"""Where the command `sarit` begins.  Ctrl-C is quiet from here on, also while modules are imported.

A KeyboardInterrupt between two imports is a traceback, and one inside of an extension module anything.  So until a
command runs, Ctrl-C has the effect that it has on a program in C (`hear_interrupts` of `main.py`).
"""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise it is ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sarit.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
