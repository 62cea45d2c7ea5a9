"""The durable log of a container: a port, local files, ledgers of BookKeeper."""
