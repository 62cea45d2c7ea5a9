"""The durable log of a container on the ledgers of Apache BookKeeper."""
