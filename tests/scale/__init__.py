"""Load tests of all features, too long for the default suite: `python -m tests.scale --help`."""
