"""SQL over what a client reads: relations of streams and tables, and the engine on a thread."""
