"""One stream: epochs, scaling, byte streams, event time."""
