"""Where log, index and chunks of a process are."""
