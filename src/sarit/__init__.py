"""Sarit: distributed stream storage that speaks the Pravega protocols."""
