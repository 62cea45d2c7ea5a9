"""Which process a data directory and its long-term storage belong to."""
