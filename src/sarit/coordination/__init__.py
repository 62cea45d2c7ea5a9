"""Coordinates which store owns which container: the container map, members, leaders; in memory and on ZooKeeper."""
