"""Formats: between the bytes of events and columns."""
