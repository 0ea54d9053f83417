"""Judges whether an export may take the place of the one in service, by the answers of both on the same rows.

A metric is judged by what the rows can tell, one-sided with 95 %:

- `worse`: it has surely fallen by more than the margin;
- `no_worse`: it has surely not;
- `undecided`: the rows are too few to tell.

A slice is judged likewise, with a confidence that holds for all slices together, and only a sure fall counts: small
slices never decide, and are counted.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from schemas.command import finite
from schemas.errors import counted
from schemas.exports.notes import ExportNotes
from schemas.spec.forms import PromoteRules
from trainer.evaluation.metrics import ONE_SIDED, measure, standard_error
from trainer.evaluation.predictions import Predictions
from trainer.spec.metrics import figure, higher_is_better

if TYPE_CHECKING:  # importing it at run time would import TensorFlow
    from trainer.evaluation.scoring import Scored

LEAST_ROWS = 30  # of a slice that is judged

Verdict = Literal["no_worse", "worse", "undecided", "alone"]


@dataclasses.dataclass(frozen=True)
class Judged:
    """A metric of an export beside that of the one in service, on all rows or on a slice.

    Attributes:
      metric: its name.
      candidate: its value.
      serving: the same of the export in service; None: there is none.
      gain: how much better the candidate is, whichever way the metric points.
      standard_error: of the gain; without an export in service, of the value.
      margin: how much worse it may be, in the metric's units.
      threshold: the least, of losses and errors the most, that is accepted; None: any value.
      verdict: see above; `alone`: nothing to compare with.
      rows: how many rows it was measured on.
      feature, value: the slice; empty: all rows.
    """

    metric: str
    candidate: float
    serving: float | None
    gain: float | None
    standard_error: float
    margin: float
    threshold: float | None
    verdict: Verdict
    rows: int
    feature: str = ""
    value: str = ""

    @property
    def meets_threshold(self) -> bool:
        """Whether the value is on the right side of its threshold; a value that is undefined is not."""
        if self.threshold is None:
            return True
        higher = higher_is_better(self.metric)
        return self.candidate >= self.threshold if higher else self.candidate <= self.threshold


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What the gate says.

    Attributes:
      metrics: on all rows.
      slices: on the slices that are large enough.
      refusals: why the export is refused; none: it is not.
      doubts: what the rows cannot tell.
      notes: what else a reader should know.
    """

    metrics: tuple[Judged, ...]
    slices: tuple[Judged, ...]
    refusals: tuple[str, ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...]


def default_metrics(classes: Sequence[str]) -> tuple[str, ...]:
    """Returns the metrics that are compared, by the names of the classes, of which a number has none."""
    if not classes:
        return ("root_mean_squared_error",)
    return ("accuracy", "auc") if len(classes) == 2 else ("accuracy",)


def judge(scored: Scored, rules: PromoteRules, metrics: Sequence[str], margins: Mapping[str, float]) -> Judgement:
    """Judges the first export of `scored`; the second one, if there is one, is in service.

    Args:
      scored: the answers of both.
      rules: thresholds, margin and slices.
      metrics: which metrics are compared, beside those that have a threshold.
      margins: margins of single metrics, which take the place of the rules'.
    """
    both = np.logical_and.reduce(scored.answered)
    candidate, *in_service = [predictions.take(both) for predictions in scored.predictions]
    serving = in_service[0] if in_service else None
    compared = dict.fromkeys((*metrics, *rules.thresholds))
    judged = [_judged(name, candidate, serving, rules, margins.get(name, rules.margin)) for name in compared]
    notes, slices = [], []
    if serving is not None:
        large = [part for part in scored.slices if (part.rows & both).sum() >= LEAST_ROWS]
        if small := len(scored.slices) - len(large):
            notes.append(f"not judged: {counted(small, 'slices')} of fewer than {LEAST_ROWS} rows")
        margin = 3 * rules.margin if rules.slice_margin is None else rules.slice_margin
        sure = statistics.NormalDist().inv_cdf(1 - 0.05 / max(1, len(large)))
        for part in large:
            rows = part.rows[both]
            of_part = _judged(metrics[0], candidate.take(rows), serving.take(rows), rules, margin, sure=sure)
            slices.append(dataclasses.replace(of_part, feature=part.feature, value=part.value, threshold=None))
    refusals = [*_unanswered(scored, rules), *(text for metric in judged for text in _refusals(metric))]
    refusals += [_fallen(part) for part in slices if part.verdict == "worse"]
    doubts = [text for metric in judged for text in _doubts(metric)]
    return Judgement(tuple(judged), tuple(slices), tuple(refusals), tuple(doubts), tuple(notes))


def _judged(
    name: str,
    candidate: Predictions,
    serving: Predictions | None,
    rules: PromoteRules,
    margin: float,
    sure: float = ONE_SIDED,
) -> Judged:
    value, error = measure(name, candidate), standard_error(name, candidate, serving)
    threshold = rules.thresholds.get(name)
    if serving is None:
        return Judged(name, value, None, None, error, margin, threshold, "alone", candidate.rows)
    before = measure(name, serving)
    gain = value - before if higher_is_better(name) else before - value
    if not higher_is_better(name):
        margin *= abs(before)
    verdict: Verdict = "undecided"
    if math.isfinite(gain) and math.isfinite(error):
        low, high = gain - sure * error, gain + sure * error
        verdict = "no_worse" if low >= -margin else "worse" if high < -margin else "undecided"
    return Judged(name, value, before, gain, error, margin, threshold, verdict, candidate.rows)


def _unanswered(scored: Scored, rules: PromoteRules) -> Iterator[str]:
    """A refusal where the candidate leaves many more rows without a prediction than the export in service."""
    rows = len(scored.answered[0])
    left_out, *before = (int((~answered).sum()) for answered in scored.answered)
    if rows and left_out - sum(before) > rules.margin * rows:
        yield (
            f"it gives no prediction for {left_out:,} of {rows:,} rows, and the one in service leaves out "
            f"{sum(before):,}: more than the margin of {figure(rules.margin)} allows"
        )


def _refusals(judged: Judged) -> Iterator[str]:
    own = f"{judged.metric} {figure(judged.candidate)}"
    error = f"(standard error {figure(judged.standard_error, 2)})"
    if judged.verdict == "worse" and judged.gain is not None:
        yield (
            f"{own} is worse than {figure(judged.serving)} of the export in service by {figure(-judged.gain)} {error}, "
            f"more than the margin of {figure(judged.margin, 2)}"
        )
    if not judged.meets_threshold:
        side = "below" if higher_is_better(judged.metric) else "above"
        yield f"{own} {error} is {side} the schema's threshold of {figure(judged.threshold)}"


def _doubts(judged: Judged) -> Iterator[str]:
    if judged.verdict != "undecided":
        return
    if judged.gain is None or not math.isfinite(judged.gain) or not math.isfinite(judged.standard_error):
        yield f"{judged.metric}: undefined on {counted(judged.rows, 'rows')}"
        return
    worse_by = ONE_SIDED * judged.standard_error - judged.gain
    needed = judged.rows * (ONE_SIDED * judged.standard_error / max(judged.margin + min(judged.gain, 0), 1e-12)) ** 2
    more = ""
    if judged.margin + judged.gain > 0 and needed < 1e9:
        more = f"; about {math.ceil(needed / 10) * 10:,} rows would decide it, or a margin of {figure(worse_by, 2)}"
    yield (
        f"{judged.metric} is {figure(judged.candidate)}, and {figure(judged.serving)} in service; the standard error "
        f"of this difference is {figure(judged.standard_error, 2)} on {counted(judged.rows, 'rows')}, so the export "
        f"could be worse by {figure(worse_by, 2)}, more than the margin of {figure(judged.margin, 2)}{more}"
    )


def _fallen(part: Judged) -> str:
    return (
        f"{part.metric} where {part.feature} is {part.value!r} falls from {figure(part.serving)} to "
        f"{figure(part.candidate)} (standard error {figure(part.standard_error, 2)}, {part.rows:,} rows), more than "
        f"the margin of {figure(part.margin, 2)}"
    )


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
        """Returns the decision as JSON holds it; numbers that are not finite are null."""
        fields = dataclasses.asdict(self)
        if self.restores is None:
            del fields["restores"]
        now = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
        recorded: dict[str, Any] = finite({"time": now, **fields})
        return recorded

    def lines(self) -> Iterator[str]:
        """Yields the decision for people."""
        for metric in self.metrics:
            yield _line(metric)
        fallen = [part for part in self.slices if part.verdict == "worse"]
        if self.slices:
            yield f"slices     {len(self.slices):,} judged, {len(fallen):,} of them worse"
        yield from (f"note       {note}" for note in self.notes)
        yield from (f"{'forced' if self.forced else 'because':10} {reason}" for reason in self.reasons)
        if self.outcome == "unchanged":
            yield f"unchanged  version {self.version} of {self.to} is this export"
        elif self.in_service:
            yield f"in service {self.to}/{self.version}: {self.export}"
        else:
            state = "nothing is in service" if self.against is None else f"version {self.against} stays in service"
            yield f"{self.outcome:10} {self.export}: {state}"


def digest_of(notes: ExportNotes) -> str:
    """Returns the SHA-256 of the checksums of an export's files."""
    return hashlib.sha256(json.dumps(sorted(notes.files.items())).encode()).hexdigest()


def _line(judged: Judged) -> str:
    text = f"{judged.metric:10} {figure(judged.candidate)}"
    if judged.serving is None:
        return f"{text}, standard error {figure(judged.standard_error, 2)}, on {counted(judged.rows, 'rows')}"
    verdict = judged.verdict.replace("_", " ")
    return (
        f"{text}, in service {figure(judged.serving)}: gain {figure(judged.gain)}, standard error "
        f"{figure(judged.standard_error, 2)}, margin {figure(judged.margin, 2)}, "
        f"on {counted(judged.rows, 'rows')}: {verdict}"
    )
