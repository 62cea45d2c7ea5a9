"""`sarit` whose node has a patience of seconds instead of a minute: `python impatient_node.py standalone …`."""

from __future__ import annotations

import sarit.standalone
from sarit.cli.main import main
from sarit.rpc import door, reception
from sarit.store import server
from sarit.store.patience import Patience

PATIENCE_SECONDS = 4.0


def impatient(store, max_connections):
    return server.StoreServer(store, Patience(PATIENCE_SECONDS), max_connections)


if __name__ == "__main__":
    server.LOOK_SECONDS = 0.5
    door.STALLED_SECONDS = PATIENCE_SECONDS
    reception.Reception.__init__.__kwdefaults__["patience_seconds"] = PATIENCE_SECONDS
    sarit.standalone.StoreServer = impatient
    main()
