"""Every state a power cut can leave, enumerated and recovered: see `states.py`."""
