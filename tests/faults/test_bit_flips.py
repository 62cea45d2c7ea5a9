"""A flipped bit anywhere in a data directory is served right or refused; never other data, never a bug's traceback."""

import shutil

from tests.faults import bit_flips


def test_flipped_bits_are_refused_or_change_nothing() -> None:
    """A sample; `python -m tests.faults.bit_flips --all` flips a bit of every byte."""
    working = bit_flips.scratch()
    try:
        done = bit_flips.run(working, step=1499, seed=7)
    finally:
        shutil.rmtree(working)
    assert not done.wrong, "\n".join(done.wrong)
    assert done.flips > 100
    assert done.total("refused"), "no flip met a reader"
    assert done.total("not opened")
