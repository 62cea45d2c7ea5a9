"""Key-value tables in the layout of the Java client (client_behaviour.md par. 9)."""
