"""The wire protocol: frames, commands, append blocks."""
