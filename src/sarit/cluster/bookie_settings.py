"""Reads the configurations of bookies from their HTTP admin servers."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final, TypeAlias

from sarit.cluster.limits import BOOKIE_SETTINGS_BYTES, DOCTOR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.coordination.zookeeper import ZooKeeper
    from sarit.env.ports import Env

# A bookie, and its configuration; None: unknown.
BookieSettings: TypeAlias = "tuple[str, dict[str, object] | None]"

_PATH: Final = "/api/v1/config/server_config"


async def ask_settings(zookeeper: ZooKeeper, root: str, bookies: Sequence[str], env: Env) -> list[BookieSettings]:
    """Return the configurations of bookies, asking each that has an HTTP admin server."""
    from sarit.log.bookkeeper.registration import admin_address

    found: dict[str, dict[str, object] | None] = dict.fromkeys(bookies)
    worker = env.threads.worker("doctor")
    try:
        for bookie in bookies:
            registered = await zookeeper.get(f"{root}/available/{bookie}")
            address = None if registered is None else admin_address(registered.value)
            if address is not None:
                with suppress(OSError, HTTPException, ValueError):
                    answer = await worker.run(partial(_get_json, address, _PATH))
                    found[bookie] = answer if isinstance(answer, dict) else None
    finally:
        await worker.close()
    return list(found.items())


def bookies_with(bookies: Sequence[BookieSettings], key: str, value: str) -> list[str]:
    """Return the bookies whose configuration sets a key to a value."""
    return [name for name, values in bookies if str((values or {}).get(key)).lower() == value]


def _get_json(address: tuple[str, int], path: str) -> object:
    http = HTTPConnection(*address, timeout=DOCTOR_SECONDS)
    try:
        http.request("GET", path)
        return json.loads(http.getresponse().read(BOOKIE_SETTINGS_BYTES))
    finally:
        http.close()
