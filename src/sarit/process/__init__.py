"""What each process of Sarit is made of: its roles, settings, listeners and signals."""
