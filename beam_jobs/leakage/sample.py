"""A sample of the rows of the train split, to find out what each feature tells about the label. Bounded, and mergeable.

Each class has the same number of rows in it, as far as it has so many: then a rare class is judged as well as a common
one. The rows are those of the smallest hashes of what they hold and of their offsets, whatever their order and their
files' names.
"""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np

from schemas.storage.json_files import parse_json

VALUES = 1 << 19  # of all rows of a sample together
LEAST, MOST = 256, 8192  # rows
CLASSES = 1000  # of more, none is judged
_ARRAYS = ("ranks", "labels", "numbers", "codes")


@dataclasses.dataclass
class Drawn:
    """Rows.

    Attributes:
      ranks: uint64 `[n]`: hashes of what they hold and of their offsets; the smallest ones stay.
      labels: `[n]`: float64 numbers, or uint64 hashes of classes.
      numbers: float32 `[n, width]`: the features of numbers, side by side.
      codes: uint64 `[n, features]`: hashes of strings, 0 for a missing one.
    """

    ranks: np.ndarray
    labels: np.ndarray
    numbers: np.ndarray
    codes: np.ndarray

    def taken(self, places: np.ndarray) -> Drawn:
        """Some of them."""
        return Drawn(*(getattr(self, name)[places] for name in _ARRAYS))


class Sample:
    """The sample of some rows.

    Attributes:
      counts: how many rows each class had, by the hash of its name; of a label that is a number, of the one class 0.
      names: what these classes are called.
    """

    def __init__(self, width: int) -> None:
        self.rows = min(MOST, max(LEAST, VALUES // max(width, 1)))
        self.counts: dict[int, int] = {}
        self.names: dict[int, bytes] = {}
        self.too_many_classes = False
        self._width = width
        self._drawn: list[Drawn] = []
        self._held = 0
        self._limits: dict[int, int] = {}  # a class's rows from this rank on are not drawn

    def add(self, drawn: Drawn, names: dict[int, bytes]) -> None:
        """Adds rows of the train split, and what classes among them are called."""
        classes, counts = np.unique(_keys(drawn.labels), return_counts=True)
        self._count(dict(zip(classes.tolist(), counts.tolist(), strict=True)), names)
        if self.too_many_classes:
            return
        if self._limits:
            classes, places = np.unique(_keys(drawn.labels), return_inverse=True)
            limits = np.array([self._limits.get(int(c), 2**64 - 1) for c in classes], np.uint64)
            drawn = drawn.taken(np.flatnonzero(drawn.ranks < limits[places]))
        self._join(drawn)

    def merge(self, other: Sample) -> None:
        """Adds the rows of another one."""
        self.too_many_classes |= other.too_many_classes
        self._count(other.counts, other.names)
        drawn = other.drawn()
        if drawn is not None and not self.too_many_classes:
            self._join(drawn)

    def drawn(self) -> Drawn | None:
        """The sample; None if no row can be judged."""
        self._cut()
        return self._drawn[0] if self._drawn else None

    def _count(self, counts: dict[int, int], names: dict[int, bytes]) -> None:
        for key, count in counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        self.names |= names
        if len(self.counts) > CLASSES:
            self.too_many_classes = True
        if self.too_many_classes:
            self.counts, self.names, self._drawn, self._held = {}, {}, [], 0

    def _join(self, drawn: Drawn) -> None:
        if len(drawn.ranks):
            self._drawn.append(drawn)
            self._held += len(drawn.ranks)
        if self._held > 2 * self.rows:
            self._cut()

    def _cut(self) -> None:
        """Leaves as many of each class as fit, and the same number of each as far as it goes."""
        if not self._drawn:
            return
        every = Drawn(*(np.concatenate([getattr(drawn, name) for drawn in self._drawn]) for name in _ARRAYS))
        keys = _keys(every.labels)
        order = np.lexsort((every.ranks, keys))
        classes, starts, counts = np.unique(keys[order], return_index=True, return_counts=True)
        each = _fitting(np.array(list(self.counts.values())), self.rows)  # of all rows: however parts were cut before
        within = np.arange(len(order)) - np.repeat(starts, counts)
        kept = every.taken(order[within < each])
        for place in np.flatnonzero(counts > each).tolist():
            self._limits[int(classes[place])] = int(every.ranks[order[starts[place] + each]])
        self._drawn, self._held = [kept], len(kept.ranks)

    def to_bytes(self) -> bytes:
        """NumPy's own format, and JSON."""
        self._cut()
        meta = {
            "width": self._width,
            "too_many_classes": self.too_many_classes,
            "counts": list(self.counts.items()),
            "names": [[key, name.decode("latin-1")] for key, name in self.names.items()],
        }
        arrays = {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
        for drawn in self._drawn:
            arrays |= {name: getattr(drawn, name) for name in _ARRAYS}
        sink = io.BytesIO()
        np.savez(sink, **arrays)  # type: ignore[arg-type]
        return sink.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> Sample:
        """Reads `to_bytes`."""
        arrays = np.load(io.BytesIO(data), allow_pickle=False)
        meta = parse_json(arrays["meta"].tobytes())
        found = Sample(meta["width"])
        found.names = {key: name.encode("latin-1") for key, name in meta["names"]}
        if "ranks" in arrays:
            found.add(Drawn(*(arrays[name] for name in _ARRAYS)), {})
        found.counts, found.too_many_classes = dict(meta["counts"]), meta["too_many_classes"]
        return found


def _keys(labels: np.ndarray) -> np.ndarray:
    """The class of each row; numbers are of one class."""
    return labels if labels.dtype == np.uint64 else np.zeros(len(labels), np.uint64)


def _fitting(counts: np.ndarray, rows: int) -> int:
    """The largest number such that no more than `rows` rows remain if each class keeps at most so many; 1 at least."""
    low, high = 1, max(int(counts.max()), 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if int(np.minimum(counts, middle).sum()) <= rows else (low, middle - 1)
    return low
