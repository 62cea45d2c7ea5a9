"""From memory to long-term storage."""
