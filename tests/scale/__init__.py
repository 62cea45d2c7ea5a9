"""The whole contract under load, too long for the default suite: `python -m tests.scale --help`."""
