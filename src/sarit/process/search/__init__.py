"""Searches in a controller: what its family of calls consists of (`process/search_calls.py`)."""
