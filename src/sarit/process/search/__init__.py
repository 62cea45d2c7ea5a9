"""Search and continuous queries in a controller: their families of calls (`calls.py`), and their files and rows."""
