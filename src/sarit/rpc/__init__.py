"""The controller API over gRPC: server, channel, messages."""
