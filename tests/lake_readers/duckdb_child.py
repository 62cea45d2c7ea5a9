"""DuckDB with its Iceberg extension, from PyPI's packages: answers queries, one a line (`engines.SqlProgram`).

Runs in an environment with these packages alone: nothing of Sarit is imported."""

import importlib
import json
import sys
from pathlib import Path

import duckdb


def main() -> None:
    """Answer until the input ends."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "2"})
    for name in ("avro", "iceberg"):  # the second needs the first
        package = Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
        (extension,) = package.glob("extensions/**/*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    for line in sys.stdin:
        try:
            answer = {"rows": connection.execute(json.loads(line)).fetchall()}
        except duckdb.Error as error:
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
