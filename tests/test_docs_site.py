"""The documentation builds, with every link checked (tools/docs_site.py)."""

from __future__ import annotations

import ast
import html
import json
import re
import textwrap
import zipfile
from pathlib import Path

import click
import pyspark
import pytest

import sarit
from sarit import aio
from sarit.cli.main import cli
from tools import cli_page
from tools.blocking_manifest import MODULES
from tools.docs_site import OUTSIDE, ROOT, Site, build, expanded

# What a browser fetches by itself; plain links (<a href>) are followed by people.
_FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]*)")

# A module and a text: described at the head of the page.
_IN_TEXT = ("__version__", "aio")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    problems = build(ROOT, folder / "work", folder / "site")
    assert not problems, "\n".join(problems)
    return folder / "site"


def test_site_holds_the_pages_outside_docs(built: Path) -> None:
    for page in OUTSIDE.values():
        assert (built / page).with_suffix(".html").is_file(), page


def test_reference_holds_every_public_name(built: Path) -> None:
    page = (built / "reference" / "python.html").read_text()
    missing = [name for name in sarit.__all__ if f'id="sarit.{name}"' not in page and name not in _IN_TEXT]
    assert not missing, f"add them to docs/reference/python.md: {missing}"
    assert all(f"<code>sarit.{name}</code>" in page for name in _IN_TEXT)
    assert "LoopThread" not in page  # who makes a client's objects is not for users


def test_asyncio_reference_holds_every_public_name_and_no_internal_one(built: Path) -> None:
    page = (built / "reference" / "asyncio.html").read_text()
    missing = [name for name in aio.__all__ if f'id="sarit.aio.{name}"' not in page]
    assert not missing, f"add them to docs/reference/asyncio.md: {missing}"
    assert 'id="sarit.aio.Searches.__call__"' in page, "an object that is called shows its call"
    facades = [facade for module in MODULES for facade in module.facades]
    internal = [f"{each.name}.{name}" for each in facades for name, why in each.hidden.items() if "call" in why]
    shown = [name for name in internal if f'id="sarit.aio.{name}"' in page]
    assert internal
    assert "Session" not in page
    assert not shown, f"filter them in docs/reference/asyncio.md: {shown}"


def test_reference_of_the_command_line_is_that_of_the_code() -> None:
    assert cli_page.PAGE.read_text() == cli_page.page(), "run make generate"


def test_reference_of_the_command_line_holds_groups_options_defaults_and_variables() -> None:
    page = cli_page.PAGE.read_text()
    headings = re.findall(r"^#+ (sarit.*)$", page, re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert {f"sarit {name}" for name in cli.list_commands(click.Context(cli))} <= set(headings)
    create = page.partition("### sarit stream create\n")[2].partition("\n### ")[0]
    assert "| `--segments INTEGER RANGE` | The initial number of segments. `x>=1` | `1` |  |" in create
    assert "And `--controller`, `--context` and `--format`: [options of most commands]" in create
    assert "| `SARIT_DATA_DIR` |" in page


def test_texts_of_links_are_no_file_names(built: Path) -> None:
    named = {
        f"{page.relative_to(built)}: {text}"
        for page in built.rglob("*.html")
        for text in re.findall(r'<a [^>]*href="[^"]+"[^>]*>(?:<code>)?([\w./-]+\.md)<', page.read_text())
    }
    assert not named


def test_example_programs_are_pages(built: Path) -> None:
    page = (built / "examples.html").read_text()
    programs = re.findall(r'<a href="(examples/[\w/]+\.html)">', page)
    assert len(programs) >= 11
    assert all((built / program).is_file() for program in programs)
    assert "sensors" in (built / "examples" / "iot_scaling" / "sensors.html").read_text()


def test_pages_fetch_nothing_from_other_hosts(built: Path) -> None:
    fetched = {url for page in built.rglob("*.html") for url in _FETCHED.findall(page.read_text())}
    assert not fetched


def _repository(root: Path, text: str) -> Path:
    (root / "docs" / "decisions").mkdir(parents=True)
    (root / "docs" / "other.md").write_text("# Other\n\n## Part\n")
    (root / "docs" / "decisions" / "0001-first.md").write_text("# First\n")
    (root / "README.md").write_text(textwrap.dedent(text))
    (root / "mkdocs.yml").write_text(
        "site_name: test\ntheme: {name: material, font: false}\nplugins: [search]\n"
        "nav: [index.md, other.md, 'decisions/*.md']\n"
    )
    return root


def test_links_that_hold_pass(tmp_path: Path) -> None:
    root = _repository(
        tmp_path / "root",
        """
        # Test

        [a page](docs/other.md), [an anchor](docs/other.md#part), [another](#test), docs/other.md, docs/decisions/0001
        """,
    )
    assert build(root, tmp_path / "work", tmp_path / "site") == []
    page = (tmp_path / "site" / "index.html").read_text()
    assert page.count("decisions/0001-first") >= 2  # the navigation's link, and the text's
    assert '<a href="other/">Other</a>, <a href="decisions/0001-first/">First</a>' in page  # titles, not files


def test_broken_links_fail_the_build(tmp_path: Path) -> None:
    root = _repository(
        tmp_path / "root",
        """
        # Test

        [no page](docs/missing.md) docs/absent.md docs/decisions/0002 [outside](pyproject.toml)
        [no anchor](docs/other.md#missing)
        [no anchor here](#absent)
        """,
    )
    *staged, rendered = build(root, tmp_path / "work", tmp_path / "site")
    assert staged == [
        "README.md: the link docs/missing.md leads to no page of the site",
        "README.md: there is no page docs/absent.md",
        "README.md: there is no page docs/decisions/0002",
        "README.md: the link pyproject.toml leads to no page of the site",
    ]
    assert rendered.count("page does not exist") >= 2
    assert "(other.md#missing)" in rendered
    assert "(#absent)" in rendered
    assert rendered.count("anchor does not exist") >= 2
    assert not (tmp_path / "site").exists()


def test_page_missing_from_the_navigation_fails_the_build(tmp_path: Path) -> None:
    root = _repository(tmp_path / "root", "# Test\n")
    (root / "docs" / "new.md").write_text("# New\n")
    assert build(root, tmp_path / "work", tmp_path / "site") == ["mkdocs.yml: the navigation lacks new.md"]


def test_code_is_left_alone() -> None:
    site = Site(ROOT, {"README.md": "index.md", "docs/spark.md": "a.md"})
    text = "`docs/spark.md`\n\n    docs/spark.md\n\n```\ndocs/spark.md [x](docs/spark.md)\n```\ndocs/spark.md\n"
    resolved = site.resolved("README.md", text)
    assert resolved == text.removesuffix("docs/spark.md\n") + "[Spark](a.md)\n"
    assert site.problems == []


def test_patterns_take_the_pages_not_named_elsewhere() -> None:
    nav = [{"A": ["a/second.md", "a/*.md"]}, "b.md"]
    pages = ["a/first.md", "a/second.md", "b.md"]
    assert expanded(nav, pages) == [{"A": ["a/second.md", "a/first.md"]}, "b.md"]


def test_messages_on_the_operators_page_are_in_the_code() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    tables = re.findall(
        r"^\| (?:level \| line|message when it does not start) \|.*?\n\n", page, re.DOTALL | re.MULTILINE
    )
    messages = re.findall(r"^\| (?:[A-Z]+ \| )?`([^`]+)` \|", "".join(tables), re.MULTILINE)
    assert len(tables) == 2
    assert len(messages) >= 28
    code = "\n".join(path.read_text() for path in (ROOT / "src" / "sarit").rglob("*.py"))
    pieces = [piece for message in messages for piece in re.split(r" ?… ?", message) if piece]
    stale = [piece for piece in pieces if piece not in code]
    assert not stale, f"docs/operations.md quotes what no module says: {stale}"


def _texts_of_code() -> str:
    """Every text in the code of Sarit, a line each; a value in it is `…`."""
    texts = []
    for path in (ROOT / "src" / "sarit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def _texts_of_spark() -> str:
    """The messages of Spark that the page quotes come from these two files."""
    jars = Path(pyspark.__file__).parent / "jars"
    (core,), (common,) = jars.glob("spark-core_*.jar"), jars.glob("spark-common-utils_*.jar")
    with zipfile.ZipFile(core) as of_core, zipfile.ZipFile(common) as of_common:
        worker = of_core.read("org/apache/spark/api/python/PythonWorkerFactory.class").decode("latin-1")
        conditions = json.loads(of_common.read("error/error-conditions.json"))
    return f"{worker}\n[DATA_SOURCE_NOT_FOUND] {' '.join(conditions['DATA_SOURCE_NOT_FOUND']['message'])}"


def test_messages_of_troubleshooting_are_in_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    messages = re.findall(r"^> `(.+)`$", page, re.MULTILINE)
    assert len(messages) >= 14
    known = _texts_of_code() + _texts_of_spark()
    stale = [
        message
        for message in messages
        if not re.search("[^\\n]*".join(map(re.escape, re.split(r" ?… ?", message.strip("… ")))), known)
    ]
    assert not stale, f"docs/troubleshooting.md quotes what nothing says: {stale}"


# What a newcomer types; the pages that must be found are those of the site, with the word in a title or in the text.
_SOUGHT = {
    "consumer": "guides/from-kafka.html", "topic": "guides/from-kafka.html", "partition": "guides/from-kafka.html",
    "offset": "guides/from-kafka.html", "commit": "guides/transactions.html", "producer": "guides/from-kafka.html",
    "broker": "guides/from-kafka.html", "replication": "guides/from-kafka.html", "lag": "reference/cli.html",
    "rebalance": "guides/from-kafka.html", "retention": "guides/retention.html",
    "exactly-once": "guides/exactly-once.html", "schema": "guides/from-kafka.html", "key": "guides/envelope.html",
    "header": "guides/envelope.html", "compaction": "guides/from-kafka.html",
}  # fmt: skip


@pytest.fixture(scope="module")
def searched(built: Path) -> tuple[re.Pattern[str], list[tuple[str, set[str]]]]:
    """What separates words, and each part of a page that the search knows: its place, and its words."""
    index = json.loads((built / "search.json").read_text())
    separator = re.compile(index["config"]["separator"])
    texts = (f"{item['title']} {html.unescape(re.sub('<[^>]*>', ' ', item['text']))}" for item in index["items"])
    places = (item["location"] for item in index["items"])
    return separator, [(place, set(separator.split(text.lower()))) for place, text in zip(places, texts, strict=True)]


@pytest.mark.parametrize("word", _SOUGHT)
def test_search_finds_the_words_of_newcomers(searched, word: str) -> None:
    separator, parts = searched
    sought = separator.split(word)
    pages = {
        place.partition("#")[0]
        for place, words in parts
        # As the search of the site: each word begins one of the text's.
        if all(any(each.startswith(part) for each in words) for part in sought)
    }
    assert _SOUGHT[word] in pages
