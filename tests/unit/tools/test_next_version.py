"""Fragments become sections of the changelog; the version changes where it is Sarit's, and nowhere else."""

from __future__ import annotations

import pytest

from tools.next_version import KINDS, ROOT, fragments, joined, with_version

SECTIONS = "### Added\n\n- C.\n\n### Fixed\n\n- A.\n- B,\n  in two lines.\n"
OLDER = "# Changelog\n\nWords.\n\n## 0.1.0 (2026-01-01)\n\n- First.\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "README.md").write_text("no fragment")
    (tmp_path / "b.fixed.md").write_text("- B,\n  in two lines.\n")
    (tmp_path / "a.fixed.md").write_text("- A.\n")
    (tmp_path / "c.added.md").write_text("- C.")
    return tmp_path


def test_fragments_stand_before_the_version_before(folder):
    assert joined(OLDER, fragments(folder), "0.2.0 (2026-02-02)") == (
        f"# Changelog\n\nWords.\n\n## 0.2.0 (2026-02-02)\n\n{SECTIONS}\n## 0.1.0 (2026-01-01)\n\n- First.\n"
    )


def test_what_was_unreleased_stands_below_the_fragments(folder):
    begun = "# Changelog\n\n## Unreleased\n\nFirst version.\n"
    assert joined(begun, fragments(folder), "0.2.0 (x)") == (
        f"# Changelog\n\n## 0.2.0 (x)\n\n{SECTIONS}\nFirst version.\n"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.md", "- A."), ("a.other.md", "- A."), ("a.fixed", "- A."), ("a.fixed.md", "A."), ("a.fixed.md", ""),
     ("a.fixed.md", "- A.\n\n- B.")],
)  # fmt: skip
def test_file_that_is_no_fragment_is_refused(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        fragments(tmp_path)


def test_fragments_of_the_repository_are_well_formed():
    assert set(fragments(ROOT / "changelog.d")) == set(KINDS)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ('version = "0.1.0"', 'version = "0.2.0"'),
        ("appVersion: 0.1.0", "appVersion: 0.2.0"),
        ("ARG VERSION=0.1.0", "ARG VERSION=0.2.0"),
        ("docker build -t sarit:0.1.0 .", "docker build -t sarit:0.2.0 ."),
        ("`dist/sarit-0.1.0-py3-none-any.whl`", "`dist/sarit-0.2.0-py3-none-any.whl`"),
        ("sarit-0.1.0.\n", "sarit-0.2.0.\n"),
        ('"detangle==0.1.0",', None),
        ("sarit:0.1.01", None),
        ("since 0.1.0", None),
        ("minVersion: 0.1.0", None),
    ],
)
def test_version_changes_where_it_is_of_sarit(text, changed):
    assert with_version(text, "0.1.0", "0.2.0") == (changed or text)
