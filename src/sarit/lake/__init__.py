"""Streams as Iceberg tables: rows and files, commits that name the cut they reach, and who carries them out."""
