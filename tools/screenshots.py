"""`make screenshots`: the pictures of reports in the documentation, as headless Chromium shows them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from tests.support import html_page

DOCS = Path(__file__).parent.parent / "docs"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes `data-report.webp` and `model-report.webp`. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data_report", type=Path, help="report.html of a dataset's run")
    parser.add_argument("model_report", type=Path, help="report-eval.html of a model")
    options = parser.parse_args(argv)
    for page, name in ((options.data_report, "data-report"), (options.model_report, "model-report")):
        with tempfile.TemporaryDirectory() as folder:
            png = Path(folder, "page.png")
            html_page.screenshot(page.resolve(strict=True), png, width=1100, height=1100)
            with Image.open(png) as picture:
                picture.convert("RGB").save(DOCS / f"{name}.webp", quality=80, method=6)
        print(f"docs/{name}.webp: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
