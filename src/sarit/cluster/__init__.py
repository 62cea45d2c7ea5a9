"""The processes of a cluster, which ZooKeeper coordinates."""
