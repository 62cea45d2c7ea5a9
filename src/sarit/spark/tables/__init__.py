"""Shows streams, segments, reader groups and key-value tables as tables of Spark."""
