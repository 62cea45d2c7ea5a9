"""Open sessions of a client: what is shared by everything that it makes."""
