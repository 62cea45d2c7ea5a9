"""What `tests/test_tidy.py` still tolerates: numbers only fall, and the final state of each table is empty."""

from __future__ import annotations

from typing import Final

# Literal constants in seconds, bytes or milliseconds outside `core/limits.py` and `node/settings.py`, by file.
LITERALS: Final[dict[str, int]] = {
    "src/sarit/controller/keys.py": 1,
    "src/sarit/index/keys.py": 2,
    "src/sarit/log/records.py": 3,
    "src/sarit/storage/incoming.py": 1,
    "src/sarit/storage/names.py": 2,
}
# Uses of retired words (`tests/vocabulary.py`), by word.
RETIRED_IN_IDENTIFIERS: Final[dict[str, int]] = {
    "anew": 14,
    "asleep": 14,
    "bed": 5,
    "captured": 4,
    "crew": 29,
    "crowd": 17,
    "door": 11,
    "doors": 3,
    "finisher": 3,
    "gathering": 2,
    "heard": 19,
    "hint": 18,
    "hints": 6,
    "lane": 92,
    "lanes": 11,
    "look": 77,
    "looked": 38,
    "looks": 39,
    "pace": 19,
    "paced": 2,
    "patience": 3,
    "planted": 8,
    "presence": 10,
    "pump": 10,
    "remembered": 5,
    "room": 43,
    "roster": 68,
    "settle": 38,
    "settling": 4,
    "shares": 24,
    "silence": 18,
    "spread": 6,
    "team": 19,
    "tell": 14,
    "tells": 7,
    "told": 155,
    "touch": 6,
    "watched": 23,
    "wish": 10,
}
RETIRED_IN_PROSE: Final[dict[str, int]] = {
    "anew": 30,
    "caretaker": 1,
    "lane": 4,
    "lanes": 1,
    "looked": 44,
    "patience": 4,
    "planted": 6,
    "roster": 7,
    "told": 59,
    "turnstile": 1,
}
