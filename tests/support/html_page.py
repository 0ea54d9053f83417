"""A page of HTML, read without a browser: its structure, its texts, what it links to."""

from __future__ import annotations

import html.parser

VOID = {"meta", "input", "br", "path", "use", "rect", "image"}


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
