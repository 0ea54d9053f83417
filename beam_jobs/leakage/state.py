"""What is known of a job's records as they are gone through: mergeable, and as bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from beam_jobs.leakage.extremes import Extremes
from beam_jobs.leakage.sample import Sample
from beam_jobs.leakage.traces import Traces
from schemas.storage.json_files import parse_json


class Known:
    """What some records leave behind. Pickled as its bytes.

    Attributes:
      traces: of rows, of keys, of images, as far as there are such.
      sample: of the rows of the train split; None for images.
      extremes: the largest and the smallest images; None for rows.
    """

    def __init__(
        self, traces: dict[str, Traces], *, sample: Sample | None = None, extremes: Extremes | None = None
    ) -> None:
        self.traces = traces
        self.sample = sample
        self.extremes = extremes

    def merge(self, other: Known) -> None:
        """Adds what the other one's records left."""
        for name, traces in other.traces.items():
            self.traces[name].merge(traces)
        if self.sample is not None and other.sample is not None:
            self.sample.merge(other.sample)
        if self.extremes is not None and other.extremes is not None:
            self.extremes.merge(other.extremes)

    def to_bytes(self) -> bytes:
        """JSON whose parts are in the formats of their classes, one after the other behind it."""
        parts = [traces.to_bytes() for traces in self.traces.values()]
        if self.sample is not None:
            parts.append(self.sample.to_bytes())
        meta = {
            "traces": list(self.traces),
            "sizes": [len(part) for part in parts],
            "extremes": None if self.extremes is None else base64.b64encode(self.extremes.to_bytes()).decode(),
        }
        head = json.dumps(meta).encode()
        return b"".join([len(head).to_bytes(4, "little"), head, *parts])

    @staticmethod
    def from_bytes(data: bytes) -> Known:
        """Reads `to_bytes`."""
        begin = 4 + int.from_bytes(data[:4], "little")
        meta = parse_json(data[4:begin])
        parts = []
        for size in meta["sizes"]:
            parts.append(data[begin : begin + size])
            begin += size
        names = meta["traces"]
        return Known(
            {name: Traces.from_bytes(part) for name, part in zip(names, parts, strict=False)},
            sample=Sample.from_bytes(parts[-1]) if len(parts) > len(names) else None,
            extremes=None if meta["extremes"] is None else Extremes.from_bytes(base64.b64decode(meta["extremes"])),
        )

    def __reduce__(self) -> tuple[Callable[[bytes], Known], tuple[bytes]]:
        return Known.from_bytes, (self.to_bytes(),)
