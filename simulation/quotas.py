"""Quotas that come and go while a node serves: too small ones, full scopes, none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.security.quotas import Quota, Quotas

if TYPE_CHECKING:
    import random

    from sarit.store.store import SegmentStore

_SCOPE: Final = "sim"
_LONGEST_SECONDS: Final = 2.0
# Bytes a second, in and out: a fraction of what the actors write.
_CHOICES: Final = (
    Quotas(),
    Quotas({f"scope:{_SCOPE}": Quota(bytes_in=1000, bytes_out=10_000)}),
    Quotas({"scope:*": Quota(bytes_in=20_000, bytes_out=1000)}),
    Quotas({f"scope:{_SCOPE}": Quota(storage_bytes=1)}, [_SCOPE]),
)


async def change_quotas(store: SegmentStore, rng: random.Random) -> None:
    """Change the quotas of a store, until its process dies."""
    while True:
        store.quotas.use(rng.choice(_CHOICES), rng.randint(1, 2))
        await asyncio.sleep(rng.random() * _LONGEST_SECONDS)
