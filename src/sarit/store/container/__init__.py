"""One container: state, group commit, reads, tables, recovery."""
