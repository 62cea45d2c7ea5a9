"""What a schema registry needs of the controller in its process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.controller.access import Access
    from sarit.controller.ports import Tables
    from sarit.security.audit import Audit


@dataclass(frozen=True, slots=True)
class RegistryTables:
    """The tables in which a registry keeps its rows, and what decides who may do what.

    `installation`: the id of the node or of the cluster.  `access`: that of the controller; None: everybody may do
    everything.  `audit`: where decisions are noted."""

    tables: Tables
    installation: str
    access: Access | None
    audit: Audit
