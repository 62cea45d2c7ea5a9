"""Reads streams: the driver plans ranges of segments, tasks read them."""
