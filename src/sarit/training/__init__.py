"""Streams for training: shards, epochs and positions of a loader, whatever the framework."""
