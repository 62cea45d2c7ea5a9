"""Events on their way to segments."""
