"""The site of `make docs`, from pages that are written to be read where the source is.

mkdocs takes only what lies in `docs/`, so other pages and plots are added, and links between pages are rewritten to
where each file is on the site. Any other link stays as it is, and fails the strict build: pages name source files in
backticks.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PLOTS = "benchmarks/plots"
SCRIPT = ".docs/iframe-worker.js"  # see the Makefile
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")


def on_config(config: Any) -> Any:
    """Has pages load the script that lets them be searched from disk, where it was fetched."""
    if (ROOT / SCRIPT).exists():
        config.extra["polyfills"] = [posixpath.basename(SCRIPT)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds what lies outside `docs/`."""
    plots = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / PLOTS).glob("*.svg"))]
    script = [SCRIPT] if (ROOT / SCRIPT).exists() else []
    for path in (*PAGES, *plots, *script):
        files.append(File.generated(config, site_uri(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Points a page's links at the site's files."""
    here = page.file.src_uri
    source = next((path for path, uri in PAGES.items() if uri == here), f"docs/{here}")

    def rewritten(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[0]))
        uri = site_uri(path)
        return posixpath.relpath(uri, posixpath.dirname(here) or ".") if files.get_file_from_path(uri) else match[0]

    return LINK.sub(rewritten, markdown)


def site_uri(path: str) -> str:
    """Where a file of the repository is on the site."""
    return PAGES.get(path, path.removeprefix(".docs/").removeprefix("docs/"))
