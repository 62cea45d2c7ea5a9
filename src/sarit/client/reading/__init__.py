"""Events on their way from segments: fetching ahead, parsing, the order through scaling."""
