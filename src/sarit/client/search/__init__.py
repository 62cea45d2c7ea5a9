"""A search through a stretch of a stream, event by event: which events match, and where it came to.

    time_range.py     two times ─▶ two cuts with everything between the times, and a little more
    matchers.py       what is searched for ─▶ a matcher, which says of some events which match
    query_matcher.py  a query of the language of `sarit/search` as a matcher; `mappings.py` has its fields
    scan.py           two cuts and a matcher ─▶ steps, each with hits and a position to continue from
    query_scan.py     a query and a range of times ─▶ the best hits in the order of their times (`append_times.py`)

A search in an index finds the same hits by another way: `Hit` and `Step` are the shape of both.
"""
