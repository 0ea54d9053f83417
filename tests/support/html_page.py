"""Pages of HTML: read without a browser, and opened in headless Chromium for `browser` tests."""

from __future__ import annotations

import dataclasses
import html
import html.parser
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

VOID = {"meta", "input", "br", "img"}


class Page(html.parser.HTMLParser):
    """The tags, texts and ids of a page; every tag is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag, self.getpos()

    def handle_data(self, data):
        self.texts.append(data.strip())


# JavaScript for `measured`: what reaches beyond the window, unless a box around it scrolls; and whether the page does.
TOO_WIDE = """[...doc.querySelectorAll("main *")].filter(
  (e) => e.getBoundingClientRect().right > doc.documentElement.clientWidth + 1 && !e.closest(".box, nav, svg")
).map((e) => e.tagName + "." + e.className).join(" ") +
(doc.documentElement.scrollWidth > doc.documentElement.clientWidth)"""
# How many texts have a contrast with their background of less than 4.5, as WCAG 2 measures it, and some of them.
FAINT = """(() => {
  doc.querySelectorAll("details").forEach((e) => { e.open = true; });
  const style = (e) => doc.defaultView.getComputedStyle(e);
  const parts = (text) => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    return [numbers.slice(0, 3), numbers.length > 3 ? numbers[3] : 1];
  };
  const ground = (e) => {
    if (!e) return [255, 255, 255];
    const [color, alpha] = parts(style(e).backgroundColor), below = alpha < 1 ? ground(e.parentElement) : color;
    return color.map((value, i) => alpha * value + (1 - alpha) * below[i]);
  };
  const light = (color) => {
    const [r, g, b] = color.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [...doc.querySelectorAll("main *")].filter((e) => !e.closest("style, select") &&
    [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((e) => {
    const ink = parts(e.tagName === "text" ? style(e).fill : style(e).color)[0];
    const [a, b] = [light(ink), light(ground(e))].sort((a, b) => b - a);
    return [(a + 0.05) / (b + 0.05), e];
  }).filter(([ratio]) => ratio < 4.5);
  return [found.length, ...found.slice(0, 5).map(([r, e]) => `${e.tagName}.${e.className} ${r.toFixed(2)}`)].join(" ");
})()"""
NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--hide-scrollbars",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)


@dataclasses.dataclass(frozen=True)
class Shown:
    """A page after its scripts have run, as HTML, and what it wrote to the console."""

    dom: str
    console: list[str]


def program() -> str:
    """The program to run: that of the environment variable CHROMIUM, or one of the usual names."""
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.fail(f"no Chromium: install one of {', '.join(NAMES)}, or name its program in CHROMIUM")
    return executable


def opened(page: Path, *, script: str = "") -> Shown:
    """Opens a page.

    Args:
      page: its file.
      script: is run after those of the page, as if the page ended with it.
    """
    if script:
        text = page.read_text()
        end = text.rindex("</script>")
        page = page.with_name(f"scripted-{page.name}")
        page.write_text(text[:end] + script + text[end:])
    done = _run(page, "--dump-dom")
    return Shown(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])


def measured(page: Path, expression: str, *, width: int, dark: bool = False) -> str:
    """What a JavaScript expression over `doc`, the page's document, gives as text, in a frame of this width.

    A frame, as Chromium's own windows are no narrower than 500 pixels.
    """
    frame = (
        f'<iframe srcdoc="{html.escape(page.read_text())}" style="border: 0; width: {width}px; height: 900px"></iframe>'
    )
    script = "onload = () => { const doc = document.querySelector('iframe').contentDocument; document.title = %s; };"
    host = page.with_name(f"framed-{page.name}")
    host.write_text(f"<!doctype html><title></title>{frame}<script>{script % expression}</script>")
    done = _run(host, "--dump-dom", *["--blink-settings=preferredColorScheme=0"] * dark)
    return html.unescape(done.stdout.partition("<title>")[2].partition("</title>")[0])


def screenshot(page: Path, png: Path, *, width: int, height: int) -> None:
    """Writes what a window of this size shows to a PNG."""
    _run(page, f"--screenshot={png}", f"--window-size={width},{height}")


def _run(page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as profile:
        command = [program(), *_FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
