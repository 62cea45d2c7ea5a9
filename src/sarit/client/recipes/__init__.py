"""Recipes on state synchronizers: who is there, who leads, which settings hold (docs/guides/synchronizer.md)."""
