"""Help for tests of programs that use Sarit: fixtures of pytest, and the node behind them (docs/guides/testing.md)."""
