"""The rpcs of the controller API, by family: each method takes a request and returns a reply.

A method has the name of its rpc.  Errors of `core.errors` that an rpc has no status for leave it, and become a gRPC
status (`rpc.answers`).
"""
