"""The index of a container: a port, SQLite, SlateDB."""
