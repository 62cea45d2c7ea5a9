"""What a controller asks of the stores: in its own process, or over connections."""
