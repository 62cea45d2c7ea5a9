"""A node: its composition, its settings, who owns its directories."""
