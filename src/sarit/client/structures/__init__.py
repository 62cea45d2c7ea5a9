"""Data structures that many processes share, on synchronizers and key-value tables: `client.structures`."""
