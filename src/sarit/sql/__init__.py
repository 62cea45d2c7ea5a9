"""SQL over streams: a query's tables, what is pushed down to them, and the engine (DuckDB)."""
