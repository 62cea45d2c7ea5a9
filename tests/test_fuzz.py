"""The decoders on damaged bytes: a short deterministic form of `python -m fuzz`, and every case it ever found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.targets import CODEC, TARGETS, Target
from tests.limits import examples
from tests.unit.controller.model.test_codec import KINDS

CORPUS = Path(__file__).parent.parent / "fuzz" / "corpus"
EDGES = [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 8, b"\x80" + b"\0" * 7]
FOUND = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@st.composite
def damaged(draw, seeds):
    """Bytes like a seed: cut, doubled, overwritten, spliced with another."""
    data = bytearray(draw(seeds))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.integers(0, 5))
        if how == 0:
            del data[at:]
        elif how == 1:
            data[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif how == 2:
            data[at : at + 8] = draw(
                st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 8, b"\x80" + b"\0" * 7])
            )
        elif how == 3:
            data[at:at] = data[: draw(st.integers(0, len(data)))]
        elif how == 4:
            data[at:at] = draw(st.binary(max_size=12))
        else:
            data[at:] = draw(seeds)[at:]
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_bytes_raise_allowed_errors_only(name):
    target: Target = TARGETS[name]
    kind = name.removeprefix("controller_")
    seeds = st.sampled_from(target.seeds)
    if name.startswith("controller_") and kind in CODEC:
        records, encode, _ = KINDS[kind]
        seeds = records.map(encode)

    @settings(
        max_examples=examples(150),
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(damaged(seeds) | st.binary(max_size=200))
    def run(data):
        target(data)

    run()


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_corpus_cases_pass(path):
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_valid(name):
    for seed in TARGETS[name].seeds:
        if not name.startswith("controller_"):
            TARGETS[name].run(seed)
