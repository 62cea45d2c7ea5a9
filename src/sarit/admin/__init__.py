"""What operators see of a process over HTTP: health, metrics, REST, console."""
