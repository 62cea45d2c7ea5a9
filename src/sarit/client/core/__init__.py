"""What all parts of the client share."""
