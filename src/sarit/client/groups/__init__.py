"""Reader groups: readers that share the segments of streams, in the format of Pravega's Java client."""
