"""Read, process, write: each order counted exactly once, however often the program is killed.

    python examples/exactly_once_pipeline/pipeline.py --state FILE shop/orders shop/totals

Orders are `customer,amount`; for each, the customer's running total is written.  What makes it exact:

* The results of some orders, the reader's position after them and the totals so far are written in *one transaction* of
  the output stream, all or nothing; the newest progress event says where to continue.
* A commit is decided when the controller has recorded it.  Its events appear a little later, and a new run must not
  read its progress in between.  So the program writes the id of the transaction to a file before it commits.  The next
  run first completes that transaction: it aborts it or, if it was committed already, waits for its events.

Only one run at a time may use an output stream.  The file is all that a run needs from the previous one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from pathlib import Path
from typing import Any, Final

import sarit

ORDERS_PER_TRANSACTION: Final = 200
PROGRESS_KEY: Final = "progress"


class Pipeline:
    """One run.  `state` is the file that names the transaction in doubt."""

    def __init__(self, client: sarit.Client, source: str, target: str, state: Path) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._state = state
        self._writer = client.transactional_writer(target)

    def run(self) -> int:
        """Process all orders until the source is sealed; return how many this run processed."""
        self._end_doubt()
        position, totals, steps = self._progress()
        processed = 0
        with self._client.reader(self._source, start=position or "head") as reader:
            while orders := reader.read_events(ORDERS_PER_TRANSACTION):
                steps += 1
                with self._writer.begin() as transaction:
                    self._remember(str(transaction.id))
                    for order in orders:
                        customer, total = count(order, totals)
                        transaction.write(json.dumps({"customer": customer, "total": total}), key=customer)
                    progress = {"step": steps, "position": str(reader.position()), "totals": totals}
                    transaction.write(json.dumps(progress), key=PROGRESS_KEY)
                processed += len(orders)
        return processed

    def _end_doubt(self) -> None:
        """Complete the last transaction of the last run; if it was committed, wait until it is visible."""
        if not self._state.exists():
            return
        transaction = self._state.read_text()
        try:
            self._writer.abort(transaction)
        except sarit.Conflict:
            self._writer.commit(transaction)  # it was decided: this only waits
        except sarit.NotFound:
            pass  # it ended long ago

    def _remember(self, transaction: str) -> None:
        new = self._state.with_suffix(".new")
        with new.open("w") as file:
            file.write(transaction)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._state)
        directory = os.open(self._state.parent, os.O_RDONLY)  # so that the name survives a power loss, too
        os.fsync(directory)
        os.close(directory)

    def _progress(self) -> tuple[str | None, dict[str, int], int]:
        """Position, totals and number of the newest step in the output."""
        newest: dict[str, Any] = {"step": 0, "position": None, "totals": {}}
        for event in self._client.stream(self._target).batch():
            found = json.loads(event)
            if found.get("step", 0) > newest["step"]:
                newest = found
        return newest["position"], newest["totals"], newest["step"]


def count(order: bytes, totals: dict[str, int]) -> tuple[str, int]:
    """Add one order to the totals: its customer, and their total now."""
    customer, _, amount = order.decode().partition(",")
    totals[customer] = totals.get(customer, 0) + int(amount)
    return customer, totals[customer]


def main() -> None:
    """Run until the source is sealed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    parser.add_argument("--state", type=Path, default=Path("pipeline.state"))
    parser.add_argument("source")
    parser.add_argument("target")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt), sarit.connect(options.controller, wait=60) as client:
        print(Pipeline(client, options.source, options.target, options.state).run(), "orders")


if __name__ == "__main__":
    main()
