"""What is in `deploy/`: images, compose files, charts and service files, checked and started."""
