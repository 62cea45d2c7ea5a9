"""Converts the bytes of events to columns, and columns to the bytes of events."""
