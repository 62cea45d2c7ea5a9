"""Fuzzing of everything that reads bytes from the network or from a disk."""
