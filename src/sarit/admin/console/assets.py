"""The files of the page, read once from the package."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

    from starlette.types import Receive, Scope, Send

INDEX: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}  # fmt: skip


def load() -> dict[str, bytes]:
    """Return the contents of all files by their paths below assets/."""
    return {name: found.read_bytes() for name, found in _walk(files(__package__).joinpath("assets"), "")}


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for found in folder.iterdir():
        if found.is_dir():
            yield from _walk(found, f"{prefix}{found.name}/")
        elif found.name.rpartition(".")[2] in _TYPES:
            yield f"{prefix}{found.name}", found


class Assets:
    """Answers GET with a file: `name` if it is given, else the one in the path."""

    def __init__(self, contents: Mapping[str, bytes], name: str | None = None) -> None:
        self._contents = contents
        self._tags = {path: f'"{hashlib.sha256(content).hexdigest()[:20]}"' for path, content in contents.items()}
        self._name = name

    def __repr__(self) -> str:
        return f"<Assets, {len(self._contents)} files>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = self._name or scope["path_params"]["path"]
        content = self._contents.get(name)
        response: Response
        if content is None:
            response = JSONResponse({"error": f"the console has no file {name}"}, 404)
        elif scope["method"] not in ("GET", "HEAD"):
            response = JSONResponse({"error": "files of the console are read only"}, 405)
        else:
            etag = self._tags[name]
            known = dict(scope["headers"]).get(b"if-none-match", b"").decode("latin-1")
            fresh = known == etag
            kind = _TYPES[name.rpartition(".")[2]]
            response = Response(
                b"" if fresh else content, 304 if fresh else 200, headers={"etag": etag}, media_type=kind
            )
        await response(scope, receive, send)
