"""The controller's background work: scaling, retention, watermarks, recorded cuts, recovery."""
