"""The processes of a cluster: stores and controllers, coordinated by ZooKeeper."""
