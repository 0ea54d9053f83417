"""The decision about an export: what is recorded of it, and what a person reads."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
from collections.abc import Iterator
from typing import Any, Literal

from schemas.command import finite
from schemas.exports.notes import Notes
from trainer.promotion.gate import Judged

Outcome = Literal["promoted", "refused", "undecided", "unchanged", "rolled_back"]


@dataclasses.dataclass(frozen=True)
class Decision:
    """What became of an export.

    Attributes:
      outcome: `unchanged`: the same export is in service already.
      export: its path.
      digest: of its files: two exports with the same one are the same.
      to: the folder that is served.
      version: the number under which it is in service; None: it is not.
      against: the version that it was compared with; None: there was none.
      reasons: why.
      notes: what else a reader should know.
      data: which rows both were scored on.
      metrics, slices: what was measured.
      forced: whether it was promoted although the gate refused it.
      restores: of a roll-back, the version whose export it is.
    """

    outcome: Outcome
    export: str
    digest: str
    to: str
    version: int | None
    against: int | None
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    metrics: tuple[Judged, ...] = ()
    slices: tuple[Judged, ...] = ()
    forced: bool = False
    restores: int | None = None

    @property
    def in_service(self) -> bool:
        """Whether the export is in service now."""
        return self.version is not None

    def record(self) -> dict[str, Any]:
        """The decision as JSON holds it; numbers that are not finite are null."""
        fields = dataclasses.asdict(self)
        if self.restores is None:
            del fields["restores"]
        now = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        recorded: dict[str, Any] = finite({"time": now, **fields})
        return recorded

    def lines(self) -> Iterator[str]:
        """The decision for people."""
        for found in self.metrics:
            yield _line(found)
        fallen = [part for part in self.slices if part.verdict == "worse"]
        if self.slices:
            yield f"slices     {len(self.slices):,} judged, {len(fallen):,} have fallen"
        yield from (f"note       {note}" for note in self.notes)
        yield from (f"{'forced' if self.forced else 'because':10} {reason}" for reason in self.reasons)
        if self.outcome == "unchanged":
            yield f"unchanged  version {self.version} of {self.to} is this export"
        elif self.in_service:
            yield f"in service {self.to}/{self.version}: {self.export}"
        else:
            kept = "nothing is in service" if self.against is None else f"version {self.against} stays in service"
            yield f"{self.outcome:10} {self.export}: {kept}"


def digest_of(notes: Notes) -> str:
    """SHA-256 over the checksums of an export's files."""
    return hashlib.sha256(json.dumps(sorted(notes.files.items())).encode()).hexdigest()


def _line(found: Judged) -> str:
    text = f"{found.metric:10} {found.candidate:.4g}"
    if found.serving is None:
        return f"{text}, standard error {found.standard_error:.2g}, on {found.rows:,} rows"
    verdict = found.verdict.replace("_", " ")
    return (
        f"{text}, in service {found.serving:.4g}: gain {found.gain:+.4g}, standard error {found.standard_error:.2g}, "
        f"margin {found.margin:.2g}, on {found.rows:,} rows: {verdict}"
    )
