"""How the engine is configured: what it may use, and for queries of others what it may not reach.

A *locked* engine runs SQL of somebody whom this machine does not trust (the console's query page).  It opens no file
and no address, loads no extension, sees no variable of this program, and its configuration cannot be changed: so it
knows nothing but the relations that it is given.  An engine of a user on the user's own machine is not locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid
from sarit.core.extras import require
from sarit.sql.limits import QUERY_MEMORY_BYTES, QUERY_SPILL_BYTES, UNCONFIRMED_QUERY_BYTES

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The resources that a query may use.

    `memory_bytes`: of the engine.  `threads`: None: one for each processor.  `spill_directory`: where it writes what
    exceeds its memory, at most `spill_bytes`; None: nowhere, so that such a query fails.  `limit_bytes`: how much
    a query may read of streams; None: any amount.  `locked`: see above."""

    memory_bytes: int = QUERY_MEMORY_BYTES
    threads: int | None = None
    spill_directory: str | None = None
    spill_bytes: int = QUERY_SPILL_BYTES
    limit_bytes: int | None = UNCONFIRMED_QUERY_BYTES
    locked: bool = False


def open_engine(settings: EngineSettings) -> duckdb.DuckDBPyConnection:
    """Open DuckDB in memory, configured by settings.  Raises MissingExtra, Invalid (settings that it refuses)."""
    require("sql", "SQL over streams")
    import duckdb

    config: dict[str, Any] = {
        "memory_limit": f"{settings.memory_bytes}B",
        # Otherwise `FROM df` would read a variable of whatever function is on the stack, those of this package too.
        "python_enable_replacements": False,
        "allow_community_extensions": False,
    }
    if settings.threads is not None:
        config["threads"] = settings.threads
    if settings.spill_directory is not None:
        config |= {
            "temp_directory": settings.spill_directory,
            "max_temp_directory_size": f"{settings.spill_bytes}B",
        }
    if settings.locked:
        config |= {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    try:
        engine = duckdb.connect(":memory:", config=config)
        # Times without a zone are compared with those of events as UTC, wherever the query runs.
        engine.execute("SET TimeZone = 'UTC'")
        if settings.spill_directory is None:
            engine.execute("SET temp_directory = ''")
        if settings.locked:
            engine.execute("SET enable_external_access = false")
            engine.execute("SET lock_configuration = true")
    except duckdb.Error as error:
        raise Invalid(f"the engine refuses its settings: {error}") from None
    return engine
