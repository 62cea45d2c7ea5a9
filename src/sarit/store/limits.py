"""Fixed bounds and intervals of a store's connections, by name, unit last."""

from __future__ import annotations

from typing import Final

# A connection whose client has sent no complete request for so long after it opened is ended.
FIRST_REQUEST_SECONDS: Final = 30.0
