"""The schema registry of a query: the columns of a read by the schemas of its events, and the schema of a write."""
