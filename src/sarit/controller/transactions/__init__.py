"""Transactions: begin, commit, abort, and how they ended."""
