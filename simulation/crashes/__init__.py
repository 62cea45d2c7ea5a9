"""Crash states: every state that a power cut can leave, enumerated and recovered; see `states.py`."""
