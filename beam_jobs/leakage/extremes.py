"""The images with the most and with the fewest pixels in their files."""

from __future__ import annotations

import dataclasses
import json

from schemas.storage.json_files import parse_json

EACH = 8


@dataclasses.dataclass(frozen=True, order=True)
class Sized:
    """An image file."""

    pixels: int
    path: str
    height: int
    width: int


class Extremes:
    """The `EACH` largest and smallest of some images."""

    def __init__(self) -> None:
        self._held: set[Sized] = set()

    def add(self, images: list[Sized]) -> None:
        """Adds images."""
        self._held.update(images)
        if len(self._held) > 64 * EACH:
            self._cut()

    def merge(self, other: Extremes) -> None:
        """Adds those of another one."""
        self.add([*other.largest(), *other.smallest()])

    def largest(self) -> list[Sized]:
        """The largest first."""
        return sorted(self._held, key=lambda image: (-image.pixels, image.path))[:EACH]

    def smallest(self) -> list[Sized]:
        """The smallest first."""
        return sorted(self._held)[:EACH]

    def _cut(self) -> None:
        self._held = {*self.largest(), *self.smallest()}

    def to_bytes(self) -> bytes:
        """JSON."""
        self._cut()
        return json.dumps([dataclasses.astuple(image) for image in sorted(self._held)]).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Extremes:
        """Reads `to_bytes`."""
        found = Extremes()
        found.add([Sized(*image) for image in parse_json(data)])
        return found
