"""Confluent's API of the registry: calls, forms of requests and answers, error codes."""
