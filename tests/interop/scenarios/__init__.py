"""What the official Python client is asked to do, by theme; each function is one scenario on a `Place`."""
