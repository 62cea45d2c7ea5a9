"""Metering: the load of segments, the use of scopes, and the quotas of scopes and users."""
