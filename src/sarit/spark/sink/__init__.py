"""Writing: tasks write rows, the driver commits."""
