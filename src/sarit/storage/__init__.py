"""Long-term storage of chunks: a port, directory, object store, HDFS."""
