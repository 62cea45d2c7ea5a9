"""README.md as the description of the package: its links lead to the repository at the version's tag.

Hatchling runs this at every build (`tool.hatch.metadata.hooks.custom` in pyproject.toml).  A package index shows the
text away from the repository, where a relative link leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK: Final = re.compile(r"(?<=\]\()[^()\s]+(?=\))")


def absolute_links(text: str, base: str) -> str:
    """Return Markdown whose relative links begin with `base`."""

    def resolve(found: re.Match[str]) -> str:
        parts = urlsplit(found[0])
        return found[0] if parts.scheme or parts.netloc or not parts.path else base + found[0]

    return _LINK.sub(resolve, text)


class ReadmeHook(MetadataHookInterface):
    """The hook of Hatchling."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        base = f"{metadata['urls']['Repository']}/blob/v{metadata['version']}/"
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute_links(text, base)}
