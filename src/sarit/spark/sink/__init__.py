"""Writes rows to streams: tasks write rows, the driver commits them."""
