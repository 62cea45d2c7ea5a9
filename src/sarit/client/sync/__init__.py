"""Shared state over streams: revisioned streams, synchronizers, recipes."""
