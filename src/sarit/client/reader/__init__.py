"""Events on their way from segments."""
