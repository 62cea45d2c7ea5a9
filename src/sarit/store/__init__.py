"""The segment store: containers, tiering, and the server of the wire protocol."""
