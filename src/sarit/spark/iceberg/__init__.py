"""Reads of a stream's Iceberg table and the stream's tail as one table."""
