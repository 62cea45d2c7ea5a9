"""Flow control: the memory budget, gates and rate limiters, and load meters."""
