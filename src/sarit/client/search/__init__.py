"""A search through a stretch of a stream, event by event: which events match, and where it came to.

    time_range.py   two times ─▶ two cuts with everything between the times, and a little more
    matchers.py     what is searched for ─▶ a matcher, which says of some events which match
    scan.py         two cuts and a matcher ─▶ steps, each with hits and a position to continue from

A search in an index finds the same hits by another way: `Hit` and `Step` are the shape of both.
"""
