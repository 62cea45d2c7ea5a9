"""What slows whom down, and how load is measured."""
