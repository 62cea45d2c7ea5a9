"""`sarit` whose ledgers are small and are deleted soon: hours of roll-overs pass in minutes.

Run `python -m tests.components.node_with_small_ledgers standalone --log bookkeeper://…`."""

from __future__ import annotations

import os
from dataclasses import replace

from sarit.cli.main import main
from sarit.log.bookkeeper import chain_register
from sarit.process.places import bookkeeper_logs as log_place

LEDGER_BYTES = int(os.environ.get("SARIT_TEST_LEDGER_BYTES", str(1 << 20)))
DELETION_SECONDS = 5.0

_plain = log_place.parse_log_url


def _with_small_ledgers(url: str) -> log_place.BookKeeperPlace:
    place = _plain(url)
    return replace(place, settings=replace(place.settings, ledger_bytes=LEDGER_BYTES))


if __name__ == "__main__":
    # Shorter than the 60 s that an acknowledgement proves ownership: nobody here is stopped for so long.
    chain_register.LEDGER_DELETION_SECONDS = DELETION_SECONDS  # type: ignore[misc]
    log_place.parse_log_url = _with_small_ledgers
    main()
