"""The command `sarit`: a module per noun, and its options."""
