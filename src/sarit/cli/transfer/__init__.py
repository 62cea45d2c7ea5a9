"""`sarit export` and `sarit import`: the events of a stream in a file, and back.

    stream ─ record batches ─▶ rows (`rows.py`) ─▶ writer of a format (`output.py`) ─▶ file, and a file of progress
    file ─▶ reader of a format (`input.py`) ─▶ rows ─▶ transactions ─▶ stream, and a file of progress

Both note now and then how far they are (`progress.py`): an export, how much of its file is whole and the position in
the stream; an import, which transaction takes it from which event of the file to which.  So both go on after a kill
where they were, and nothing is written twice.
"""
