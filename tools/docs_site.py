"""Gathers the pages of `make docs`: the site's generator takes one folder, and the pages are written to be read here.

    python -m tools.docs_site .docs/pages

Pages and pictures that lie outside `docs/` are added. A link to a source file, which is not on the site, becomes the
name of that file. The generator reports links to pages or headings that are not there.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PLOTS = "benchmarks/plots"
SCRIPT = ".docs/iframe-worker.js"  # see the Makefile
NOT_PAGES = {".txt", ".conf"}
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def gather(folder: Path) -> None:
    """Writes the pages and pictures of the site into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    sources = [path for path in sorted((ROOT / "docs").rglob("*")) if path.is_file() and path.suffix not in NOT_PAGES]
    sources += [ROOT / page for page in PAGES]
    sources += [*sorted((ROOT / PLOTS).glob("*.svg")), *ROOT.glob(SCRIPT)]
    places = {path.relative_to(ROOT).as_posix(): place_of(path.relative_to(ROOT).as_posix()) for path in sources}
    for source, place in places.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            target.write_text(linked((ROOT / source).read_text(encoding="utf-8"), source, places), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)


def place_of(source: str) -> str:
    """The place of a file of the repository on the site.

    >>> place_of("docs/api/index.md"), place_of("CHANGELOG.md"), place_of("benchmarks/plots/rows.svg")
    ('api/index.md', 'changelog.md', 'benchmarks/plots/rows.svg')
    """
    return PAGES.get(source, source.removeprefix(".docs/").removeprefix("docs/"))


def linked(markdown: str, source: str, places: dict[str, str]) -> str:
    """A page with its links as the site needs them.

    >>> places = {"docs/init.md": "init.md", "CONTRIBUTING.md": "contributing.md"}
    >>> linked("[start](docs/init.md#a) and [`cli`](millrace/cli.py)", "CONTRIBUTING.md", places)
    '[start](init.md#a) and `cli`'
    """

    def rewritten(match: re.Match[str]) -> str:
        picture, text, link, anchor = match.groups(default="")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        if path in places:
            here = posixpath.dirname(places[source]) or "."
            return f"{picture}[{text}]({posixpath.relpath(places[path], here)}{anchor})"
        return text if (ROOT / path).exists() else match[0]

    return LINK.sub(rewritten, markdown)


def main() -> None:
    """Gathers the pages in the folder that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs_site", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the pages are gathered; emptied first")
    gather(parser.parse_args().folder)


if __name__ == "__main__":
    main()
