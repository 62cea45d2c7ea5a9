"""Has every process of Python that has this folder in its path close a shard of an index after few events."""

import sarit.search.limits

sarit.search.limits.MAX_SHARD_EVENTS = 4000
