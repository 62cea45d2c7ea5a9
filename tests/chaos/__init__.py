"""A real node under real faults: killed, stopped, with failing disks and networks; judged by `checkers/log.py`."""
