"""Links between installations: streams copied from one to another at equal offsets."""
