"""What all parts of a client share: connections, the controller, patience."""
