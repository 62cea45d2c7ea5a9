"""Registers the sarit data source with PySpark."""
