"""What a process says of itself: health, metrics, log lines, the console's view."""
