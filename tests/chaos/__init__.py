"""Chaos tests: a real node under real faults of process, disk and network, checked by `checkers/log.py`."""
