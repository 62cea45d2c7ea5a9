"""Kinds of background jobs of streams: what the worker role runs, a module each."""
