"""Events on their way to segments: intake, lanes, blocks, acknowledgements."""
