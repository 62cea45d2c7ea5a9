"""Full-text search over streams: queries, the documents that events are, shards of an index, continuous queries.

    query.py      what is searched for, once it is bound to the fields of a mapping
    mapping.py    which fields the events of a stream have, and of which kinds
    documents.py  an event as the tokens and values of its fields
    state.py      what an indexer has stored: shards, their files, and the cut up to which they reach
    ports.py      what indexers, searchers and continuous queries need of the world

A scan and an index give the same answers, since both take documents and queries from here.
"""
