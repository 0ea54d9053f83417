"""The result of a comparison: what differs in each feature, the verdict, and the lines that a command prints."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from schemas.display import readable, table
from schemas.errors import counted, few

Verdict = Literal["fail", "warn", "ok", "not_judged"]
NAMED = 5  # features that exceed a threshold, or that differ most
FAR = 0.001  # of the rows may be outside the range without a word, where a feature has not drifted
_CUT = 28  # characters of a value that are shown
VERDICTS: tuple[Verdict, ...] = ("fail", "warn", "ok", "not_judged")  # the worst first
_NO_THRESHOLD = "no `drift:` threshold is set"


def shares(cell: tuple[str, float, float]) -> str:
    """Describes a value or range, and its share on both sides."""
    label = cell[0] if cell[0].isprintable() else repr(cell[0])[1:-1]
    label = label if len(label) <= _CUT else f"{label[: _CUT - 3]}..."
    return f"{label or repr('')}: {percent(cell[1])} -> {percent(cell[2])}"


def percent(share: float) -> str:
    """Writes a share as a percentage; only 0 is written as 0."""
    return f"{share:.1%}" if share >= 0.0005 or not share else "< 0.1%"


@dataclasses.dataclass(frozen=True)
class Unseen:
    """Values of the second sample that the first one does not have.

    Attributes:
      examples: the most frequent ones, and how often they occur.
      distinct: how many such values there are.
      rows: how many records have one.
      at_most: the first sample may have each of them this often; 0 if it surely does not.
      at_least: whether there may be more of them, since not all values of the second sample are known.
    """

    examples: tuple[tuple[str, int], ...]
    distinct: int
    rows: int
    at_most: int
    at_least: bool


@dataclasses.dataclass(frozen=True)
class ValueRange:
    """The least and the greatest number of each sample, or the lengths of its strings.

    Attributes:
      first, second: of each sample.
      outside: how many values of the second sample are outside the first one's range, about; None for strings.
    """

    first: tuple[float, float]
    second: tuple[float, float]
    outside: int | None

    @property
    def wider(self) -> bool:
        """Whether the second one exceeds the first one."""
        return self.second[0] < self.first[0] or self.second[1] > self.first[1]


@dataclasses.dataclass(frozen=True)
class FeatureDrift:
    """How the values of a feature, or of a column of a vector, differ between two samples.

    Attributes:
      name: what is compared.
      feature: the feature's name in the schema.
      kind, role: as in the statistics.
      measure: which distance it is: l_infinity of strings, jensen_shannon of numbers.
      distance: of the values that are not missing; None where a side has none.
      noise: what `distance` is at most if both sides are samples of the same data (99 % for all features together).
      missing: the share of missing values, of each sample.
      missing_noise: the same for the difference of these shares.
      cells: ranges of numbers in order, or the values whose shares differ most; the share of each in each sample.
      unseen: values that are new in the second sample; None: there is none.
      range: None for strings without a value, and the like.
      note: why it cannot be compared, or only in part; '' if it can.
      warn, fail: the thresholds; None: there is none.
    """

    name: str
    feature: str
    kind: str
    role: str
    measure: Literal["l_infinity", "jensen_shannon"]
    distance: float | None = None
    noise: float = 0.0
    missing: tuple[float, float] = (0.0, 0.0)
    missing_noise: float = 0.0
    cells: tuple[tuple[str, float, float], ...] = ()
    unseen: Unseen | None = None
    range: ValueRange | None = None
    note: str = ""
    warn: float | None = None
    fail: float | None = None

    @property
    def cell(self) -> tuple[str, float, float] | None:
        """The value or range whose share differs most."""
        return max(self.cells, key=lambda cell: abs(cell[1] - cell[2]), default=None)

    @property
    def missing_change(self) -> float:
        """How much greater the second sample's share of missing values is."""
        return self.missing[1] - self.missing[0]

    @functools.cached_property
    def drift(self) -> float:
        """What is compared with the thresholds: the distance or the change of missing, those that are above noise."""
        distance = self.distance or 0.0
        change = abs(self.missing_change)
        return max(distance if distance > self.noise else 0.0, change if change > self.missing_noise else 0.0)

    @property
    def unjudged(self) -> str:
        """Why no threshold says anything about it; '' if one does."""
        if self.warn is None and self.fail is None:
            return _NO_THRESHOLD
        return self.note or ("too few records" if self.distance is not None and self.noise >= 1 else "")

    @functools.cached_property
    def verdict(self) -> Verdict:
        """Which threshold is exceeded; the missing share's change may exceed one where the distance is not judged."""
        if self.fail is not None and self.drift > self.fail:
            return "fail"
        if self.warn is not None and self.drift > self.warn:
            return "warn"
        return "not_judged" if self.unjudged else "ok"

    @property
    def excess(self) -> str:
        """By how much it exceeds its threshold, in words."""
        limit = self.fail if self.verdict == "fail" else self.warn
        above = f", above its threshold of {limit:g}" if limit is not None else ""
        distance = self.distance or 0.0
        if distance > self.noise and distance >= self.drift:
            where = "" if self.cell is None else f" ({shares(self.cell)})"
            return f"{self.name} drifted by {distance:.4f}{above}{where}"
        missing = " -> ".join(percent(share) for share in self.missing)
        return f"{self.name} drifted by {self.drift:.4f}{above} (missing: {missing})"

    @property
    def rank(self) -> tuple[int, float, float]:
        """Orders features, the most drifted first, and then by what may be noise."""
        return VERDICTS.index(self.verdict), -self.drift, -max(self.distance or 0.0, abs(self.missing_change))

    @property
    def most(self) -> str:
        """The value or range that differs most, and by how much; '' if none does."""
        return shares(self.cell) if self.cell is not None and self.cell[1] != self.cell[2] else ""

    @property
    def missed(self) -> str:
        """The shares of missing values in words; '' if there are none."""
        return " -> ".join(percent(share) for share in self.missing) if any(self.missing) else ""

    def remarks(self, first: str, second: str, rows: int) -> Iterator[str]:
        """Yields remarks on unseen values, and on a range that is wider by a drift or by more than a few values.

        Args:
          first, second: what the samples are called.
          rows: of the second one.
        """
        unseen = self.unseen
        if unseen is not None and self.kind != "text":  # free texts are new nearly always
            examples_text = ", ".join(f"{value!r} {count:,}" for value, count in unseen.examples)
            more = "at least " if unseen.at_least else ""
            rare = f" (or {counted(unseen.at_most, 'times')} there at most)" if unseen.at_most else ""
            rest = ", ..." if unseen.distinct > len(unseen.examples) else ""
            values, records = counted(unseen.distinct, "values"), counted(unseen.rows, "records")
            are = "is" if unseen.distinct == 1 else "are"
            yield f"{more}{values}, in {records} of {second}, {are} not in {first}{rare}: {examples_text}{rest}"
        span = self.range
        if span is not None and span.wider and (self.drift or (span.outside or 0) > FAR * rows):
            what = "lengths" if span.outside is None else "values"
            count = span.outside
            outside = "" if count is None else f", so {counted(count, 'values')} of {second} outside that range"
            ends = " to ".join(map(readable, span.second)), " to ".join(map(readable, span.first))
            yield f"{what} are from {ends[0]} in {second}, and from {ends[1]} in {first}{outside}"

    def as_json(self) -> dict[str, Any]:
        """Returns the values as JSON has them."""
        names = (*self.__dataclass_fields__, "drift", "verdict", "most", "missed")
        values = {name: getattr(self, name) for name in names}  # `asdict` copies each of the cells, of each column
        return {name: vars(value) if dataclasses.is_dataclass(value) else value for name, value in values.items()}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two samples that were compared.

    Attributes:
      first, second: what they are called, such as 'train' and 'eval'.
      rows: of each of them.
      features: the most drifted first.
      note: a sentence for readers, where features differ by more than chance explains.
    """

    first: str
    second: str
    rows: tuple[int, int]
    features: tuple[FeatureDrift, ...]
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst one of all features; `not_judged` if there is a threshold for none of them."""
        return min((feature.verdict for feature in self.features), key=VERDICTS.index, default="not_judged")

    @property
    def drifted(self) -> tuple[FeatureDrift, ...]:
        """The features that differ by more than chance explains."""
        return tuple(feature for feature in self.features if feature.drift)

    @property
    def summary(self) -> str:
        """The verdict and its reasons, in one line."""
        return f"{self._sentence()}. {self.note}" if self.note and self.drifted else self._sentence()

    def _sentence(self) -> str:
        worst = self.verdict
        if worst in ("fail", "warn"):
            excesses = [feature.excess for feature in self.features if feature.verdict == worst]
            return f"{'FAIL' if worst == 'fail' else 'warning'}: {few(excesses, NAMED, '; ')}"
        unjudged = [feature for feature in self.features if feature.verdict == "not_judged"]
        reasons = "; ".join(dict.fromkeys(feature.unjudged for feature in unjudged))
        if worst == "not_judged":
            return f"{_differing(self.drifted, excess=True)}. Not judged: {reasons or 'there is no feature'}"
        sentence = f"ok: {_differing([feature for feature in self.drifted if feature.verdict == 'ok'])}"
        if unjudged:
            sentence += f". Not judged: {counted(len(unjudged), 'features')} ({reasons})"
        drifted = [feature for feature in unjudged if feature.drift]
        return f"{sentence}, of which {_differing(drifted)}" if drifted else sentence

    def as_json(self) -> dict[str, Any]:
        """Returns the values as JSON has them."""
        return {
            "summary": self.summary,
            "first": self.first,
            "second": self.second,
            "rows": list(self.rows),
            "verdict": self.verdict,
            "features": [
                feature.as_json() | {"remarks": list(feature.remarks(self.first, self.second, self.rows[1]))}
                for feature in self.features
            ],
        }


def _differing(drifted: Sequence[FeatureDrift], *, excess: bool = False) -> str:
    """Which features differ by more than chance explains, those that differ most. `excess`: and where they do."""
    if not drifted:
        return "no feature differs by more than chance explains"
    features = "1 feature differs" if len(drifted) == 1 else f"{len(drifted):,} features differ"
    most = sorted(drifted, key=lambda feature: -feature.drift)
    named = [feature.excess if excess else f"{feature.name} by {feature.drift:.4f}" for feature in most]
    return f"{features} by more than chance explains: {few(named, NAMED, '; ')}"


SHOWN = 20  # features of a table, unless more exceed a threshold
_HEADER = ("feature", "", "distance", "noise", "missing", "what differs most")


def render(comparison: Comparison, *, every: bool = False) -> Iterator[str]:
    """Yields the lines of a comparison. `every`: of all features, not the most drifted ones alone."""
    first, second = comparison.first, comparison.second
    rows = [counted(count, "records") for count in comparison.rows]
    yield f"{second} ({rows[1]}) against {first} ({rows[0]})"
    exceeding = [feature for feature in comparison.features if feature.verdict in ("fail", "warn")]
    shown = comparison.features if every else comparison.features[: max(SHOWN, len(exceeding))]
    yield from table(_HEADER, [_cells(feature) for feature in shown], left=2, last_left=True)
    if len(shown) < len(comparison.features):
        rest = comparison.features[len(shown) :]
        most = max((feature.drift for feature in rest), default=0.0)
        yield f"and {counted(len(rest), 'more features')} that differ by {most:.4f} at most; --all shows them"
    for feature in shown:
        yield from (f"{feature.name}: {line}" for line in feature.remarks(first, second, comparison.rows[1]))
    yield comparison.summary


def _cells(feature: FeatureDrift) -> tuple[str, ...]:
    name = f"{feature.name} ({feature.role})" if feature.role != "feature" else feature.name
    state = {"fail": "FAIL", "warn": "warn"}.get(feature.verdict, "drift" if feature.drift else "noise")
    if feature.note:
        return name, "", "", "", "", feature.note
    if feature.distance is None:
        return name, state, "", "", feature.missed, ""
    return name, state, f"{feature.distance:.4f}", f"{feature.noise:.4f}", feature.missed, feature.most
