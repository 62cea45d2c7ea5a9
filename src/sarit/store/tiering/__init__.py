"""Tiering: checkpoints from memory to long-term storage, compaction, deletion of unreferenced chunks."""
