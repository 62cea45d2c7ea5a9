"""Transactions: events that readers see all, or none."""
