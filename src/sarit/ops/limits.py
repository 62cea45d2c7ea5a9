"""Bounds of what an operator runs on data: backups, verification, the doctor."""

from __future__ import annotations

from typing import Final

BACKUP_WAIT_SECONDS: Final = 600.0

# -- sarit doctor, sarit top ------------------------------------------------------------------------
DOCTOR_SYNCS: Final = 20
SLOW_SYNC_SECONDS: Final = 0.02
USUAL_DESCRIPTORS: Final = 8192
