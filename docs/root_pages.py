"""Pages of the site that stand at the root of the repository, where people and forges look for them.

mkdocs calls these functions while it builds (``hooks`` in mkdocs.yml). Links are written as they work in the repository
and led to the page here; a file that is no page, such as an example, keeps its name and loses its link.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""File at the root -> its page."""
_NO_PAGE = re.compile(r"\[([^\]]+)\]\((?:\.\./)*(?:examples|lab|packages)/[^)]+\)")
_LINK = re.compile(rf"\]\((?:\.\./)*({'|'.join(map(re.escape, PAGES))})")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        text = (root / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    up = "../" * page.file.src_uri.count("/")
    return _LINK.sub(lambda found: f"]({up}{PAGES[found[1]]}", _NO_PAGE.sub(r"\1", markdown))
