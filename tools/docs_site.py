"""Builds the documentation site: `make docs`, or `python -m tools.docs_site [FOLDER]`.

The pages are staged in `.cache/site`, and Zensical renders them with --strict, so that a link to a page or an anchor
that is not there fails the build.  Why Zensical, and why pages are staged: docs/decisions/0601.

Staging does three things.  It takes in the pages that stand outside `docs/` (`OUTSIDE`) and the programs of the
examples, without a second copy of their text in the repository.  It turns links, which are written as they hold in the
repository, into links that hold in the site.  And it turns names of pages in plain text (`docs/guides/scaling.md`; for
short `docs/decisions/0308`) into links.  The text of a link is the title of the page, where a page's file name stood.
A name or a link that fits nothing is a problem, which fails the build, too.

Code blocks and code spans stay as they are.  A line that begins with four spaces counts as code.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent

# Path in the repository -> path in the site.
OUTSIDE: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "benchmarks/results/history.md": "benchmarks-history.md",
    "examples/README.md": "examples.md",
    "examples/pipelines/README.md": "examples/pipelines.md",
}
_DOCS: Final = "docs/"
_EXAMPLES: Final = "examples/"
_TITLE: Final = re.compile(r"^# (.+?)\s*$", re.MULTILINE)
_FILE_NAME: Final = re.compile(r"\[`?[\w./-]+\.md`?\]")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_CODE: Final = r"(?P<code>(?P<ticks>`+)(?:(?!\n\n).)+?(?P=ticks)(?!`))"
_LINK: Final = r"(?P<text>!?\[[^\]]*\])\((?P<url>[^()\s]+)(?P<title>\s+\"[^\"]*\")?\)"
_NAME: Final = r"(?<![\w/.-])(?P<name>docs/[\w./-]*\w|(?:README|ARCHITECTURE|CONTRIBUTING|CHANGELOG|SECURITY)\.md)"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_MARKUP: Final = re.compile(f"{_CODE}|{_LINK}|{_NAME}", re.DOTALL)


@dataclass
class Site:
    """The pages of a repository, and what is wrong with them."""

    root: Path
    pages: dict[str, str] = field(default_factory=dict)  # path in the repository -> path in the site
    problems: list[str] = field(default_factory=list)

    def find_pages(self) -> None:
        """All that is in `docs/`, and what stands outside."""
        inside = (path.relative_to(self.root).as_posix() for path in sorted((self.root / "docs").rglob("*")))
        self.pages = {path: path.removeprefix(_DOCS) for path in inside if (self.root / path).is_file()}
        self.pages |= {path: site for path, site in OUTSIDE.items() if (self.root / path).exists()}
        for path in sorted((self.root / "examples").rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if path.suffix == ".py" and path.name != "__init__.py":
                self.pages[name] = name.removesuffix(".py") + ".md"
            elif path.suffix == ".ipynb":
                self.pages[name] = name

    def stage(self, folder: Path) -> None:
        """Write every page to `folder`, with links that hold there."""
        for path, site in self.pages.items():
            target = folder / site
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.endswith(".md"):
                target.write_text(self.resolved(path, (self.root / path).read_text()))
            elif path.endswith(".py"):
                target.write_text(f"# {self.title(path)}\n\n`````python\n{(self.root / path).read_text()}`````\n")
            else:
                shutil.copyfile(self.root / path, target)

    def resolved(self, path: str, text: str) -> str:
        """The text of the page `path` with its links resolved.  What fits nothing joins `problems`."""

        def resolve(found: re.Match[str]) -> str:
            if found["code"]:
                return found[0]
            if found["name"]:
                page = self._named(path, found["name"])
                return f"[{self.title(page)}]({self._way(path, page)})" if page else found[0]
            text, url = self._text(path, found["text"], found["url"]), self._url(path, found["url"])
            return f"{text}({url}{found['title'] or ''})"

        return "".join(part if code else _MARKUP.sub(resolve, part) for code, part in _parts(text))

    def title(self, page: str) -> str:
        """The title of a page, which is its first heading; for a program, its path."""
        if not page.endswith(".md"):
            return page.removeprefix(_EXAMPLES)
        found = _TITLE.search((self.root / page).read_text())
        return found[1] if found else page

    def _text(self, path: str, text: str, url: str) -> str:
        """The text of a link in brackets: the title of its page, where it was the name of a file."""
        page = posixpath.normpath(posixpath.join(posixpath.dirname(path), urlsplit(url).path))
        named = _FILE_NAME.fullmatch(text)
        return f"[{self.title(page)}]" if named and page in self.pages else text

    def _named(self, path: str, name: str) -> str | None:
        """The page that a name in plain text means."""
        for page in (name, f"{name}/README.md"):
            if page in self.pages:
                return page
        numbered = [page for page in self.pages if page.startswith(f"{name}-")]
        if len(numbered) == 1:
            return numbered[0]
        if not (self.root / name).is_dir():
            self.problems.append(f"{path}: there is no page {name}")
        return None

    def _url(self, path: str, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc or not parts.path:
            return url
        page = posixpath.normpath(posixpath.join(posixpath.dirname(path), parts.path))
        if page not in self.pages:
            self.problems.append(f"{path}: the link {url} leads to no page of the site")
            return url
        return parts._replace(path=self._way(path, page)).geturl()

    def _way(self, path: str, page: str) -> str:
        return posixpath.relpath(self.pages[page], posixpath.dirname(self.pages[path]) or ".")


def _parts(text: str) -> list[tuple[bool, str]]:
    """The text in pieces that are code, or not."""
    parts: list[tuple[bool, str]] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        code = bool(fence or found) or line.startswith("    ")
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not line.strip(fence[0] + " \n"):
            fence = ""
        if parts and parts[-1][0] == code:
            parts[-1] = (code, parts[-1][1] + line)
        else:
            parts.append((code, line))
    return parts


def expanded(nav: list[Any], pages: list[str]) -> list[Any]:
    """The navigation with each pattern replaced by the pages that match it and are not named elsewhere."""
    named = set(_leaves(nav))

    def expand(items: list[Any]) -> list[Any]:
        result: list[Any] = []
        for item in items:
            if isinstance(item, str) and "*" in item:
                result += [page for page in pages if fnmatch(page, item) and page not in named]
            elif isinstance(item, dict):
                result.append({key: expand(value) if isinstance(value, list) else value for key, value in item.items()})
            else:
                result.append(item)
        return result

    return expand(nav)


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [leaf for item in items for leaf in _leaves(item)]


def build(root: Path, work: Path, target: Path) -> list[str]:
    """Build the site of the repository `root` into `target`; `work` is a folder to stage in.  What is wrong with it."""
    shutil.rmtree(work, ignore_errors=True)
    site = Site(root)
    site.find_pages()
    site.stage(work / "pages")
    settings = yaml.safe_load((root / "mkdocs.yml").read_text())
    pages = sorted(page for page in site.pages.values() if page.endswith(".md"))
    settings["nav"] = expanded(settings["nav"], pages)
    named = set(_leaves(settings["nav"]))
    site.problems += [f"mkdocs.yml: the navigation lacks {page}" for page in pages if page not in named]
    site.problems += [f"mkdocs.yml: there is no page {page}" for page in sorted(named) if page not in pages]
    settings |= {"docs_dir": "pages", "site_dir": "html"}
    for plugin in settings["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            handler = plugin["mkdocstrings"]["handlers"]["python"]
            handler["paths"] = [str(root / path) for path in handler["paths"]]
    (work / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(work / "mkdocs.yml")]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        site.problems.append(_COLOUR.sub("", done.stdout + done.stderr).strip())
    else:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(work / "html", target)
    return site.problems


def main(folder: str = "site") -> int:
    """The exit code: 0 where all is well."""
    target = ROOT / folder
    problems = build(ROOT, ROOT / ".cache" / "site", target)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"the site is in {folder}/index.html")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
