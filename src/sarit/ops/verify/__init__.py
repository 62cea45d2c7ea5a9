"""Checks and repairs a data directory: `sarit verify`, `sarit repair`."""
