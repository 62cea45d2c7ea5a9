"""Serializers of events: values to payloads and back, with a schema registry or without."""
