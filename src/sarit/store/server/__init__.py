"""The wire protocol's server."""
