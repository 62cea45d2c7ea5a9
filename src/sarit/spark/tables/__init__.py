"""Tables: streams, segments, groups and key-value tables as tables."""
