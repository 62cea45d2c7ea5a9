"""Backups of running nodes, and new nodes made of them."""
