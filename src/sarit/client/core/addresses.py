"""Where a client finds its controller when the caller names none."""

from __future__ import annotations

import os
from typing import Final

CONTROLLER_VARIABLE: Final = "SARIT_CONTROLLER"
DEFAULT_ADDRESS: Final = "127.0.0.1:9090"


def default_address() -> str:
    """The address in the environment variable SARIT_CONTROLLER, else that of a node started without options."""
    return os.environ.get(CONTROLLER_VARIABLE) or DEFAULT_ADDRESS
