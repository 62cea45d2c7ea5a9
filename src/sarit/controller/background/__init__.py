"""What the controller does by itself."""
