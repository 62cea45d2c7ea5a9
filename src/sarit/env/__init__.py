"""The world behind small ports: clock, randomness, files, threads, network, TLS."""
