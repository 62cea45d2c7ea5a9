"""Transactions: the calls, the workers that complete them, and the log of completed ones."""
