"""Renders the report of a dataset, and that of a comparison. Pages load nothing, and escape what comes from data."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from schemas.command import duration, size
from schemas.dataset.leakage import SHARED, percent
from schemas.dataset.manifest import Manifest
from schemas.display import readable
from schemas.errors import counted, few
from schemas.rejects import Reject
from schemas.report import leakage as leaks
from schemas.report.charts import PAIRS, Axis, Bars, Chart, drawn, short
from schemas.report.features import PICTURED, Feature, features_of
from schemas.spec.loader import records_called


def bars(cells: Sequence[tuple[str, float, float]], names: tuple[str, str]) -> Chart | None:
    """Draws pairs of bars side by side, the shares of cells in two samples; None if there is no cell."""
    if not any(max(pair) for _, *pair in cells):
        return None
    marks = []
    for side, name in enumerate(names):
        at = [
            (place + 0.1 + 0.4 * side, place + 0.5 + 0.4 * side, 0.0, pair[side])
            for place, (_, *pair) in enumerate(cells)
        ]
        titles = [f"{label[:60]}: {percent(pair[side])} of {name}" for label, *pair in cells]
        marks.append(Bars(at, side, titles=titles))
    return Chart("", marks, Axis(low=0.0, high=max(4, len(cells)), ticks=()), Axis(low=0.0, percent=True), (200, 90))


PAGE = "data_report.html"
EXAMPLES = 5  # rejects that are shown of each reason and column
LOOKED_AT = 10_000  # rejects that are looked at for examples
SHOWN_BYTES = 300  # of a rejected record
ROW_COLUMNS = 40  # of the rows that are shown
FILES = 20  # inputs with the most rejects


@dataclasses.dataclass
class RejectGroup:
    """Rejects of one reason and column: how many there are among the first LOOKED_AT, and some of them."""

    stage: str
    reason: str
    column: str
    rows: int
    examples: list[Reject]


def reject_groups(rejects: Iterable[Reject]) -> tuple[list[RejectGroup], int]:
    """Groups the first rejects by reason and column, the most frequent first, and counts how many it looked at."""
    groups: dict[tuple[str, str, str], RejectGroup] = {}
    looked = 0
    for reject in rejects:
        if looked == LOOKED_AT:
            break
        looked += 1
        key = reject.stage, reject.reason, reject.column or ""
        group = groups.setdefault(key, RejectGroup(*key, 0, []))
        group.rows += 1
        if len(group.examples) < EXAMPLES:
            group.examples.append(reject)
    return sorted(groups.values(), key=lambda group: -group.rows), looked


def render(
    manifest: Manifest,
    *,
    statistics: Mapping[str, Any] | None,
    rejects: Iterable[Reject],
    phases: Sequence[tuple[str, float]] = (),
    images: Mapping[str, Sequence[str]] | None = None,
    leakage: Mapping[str, Any] | None = None,
    pictures: Mapping[str, str] | None = None,
    comparisons: Sequence[Mapping[str, Any]] = (),
    rows: Sequence[Mapping[str, str]] = (),
    texts: Mapping[tuple[str, int], bytes] | None = None,
) -> str:
    """Renders the report of a dataset.

    Args:
      manifest: of the run.
      statistics: as `schemas.dataset.statistics.read_statistics` returns them; None: the run has none.
      rejects: the rejected records; no more than `LOOKED_AT` are read.
      phases: the job's phases in their order, and the seconds that each took, if they are known.
      images: some images of each class, as `data:` URLs.
      leakage: as `schemas.dataset.leakage.read_leakage` returns it; None: it was not looked for.
      pictures: small pictures of the image files that `leakage` names, as `data:` URLs by path.
      comparisons: of the splits, and with an earlier dataset; as `schemas.comparison.Comparison.as_json` has them.
      rows: some rows, as the texts of their columns by name.
      texts: records that `leakage` names, by path and offset, as far as they could be read.
    """
    groups, looked = reject_groups(rejects)
    warnings: dict[str, list[str]] = collections.defaultdict(list)
    for warning in manifest.warnings:
        warnings[warning.feature].append(warning.message)
    rejected: collections.Counter[str] = collections.Counter()
    for group in groups:
        rejected[group.column] += group.rows
    relations = (leakage or {}).get("relations")
    features = (
        features_of(
            statistics,
            warnings,
            leaking=leaks.telling_features(leakage),
            rejected=rejected,
            relations=relations,
        )
        if statistics
        else []
    )
    sentence, bad = verdict(manifest, features, comparisons, leakage)
    page: str = (
        _environment()
        .get_template(PAGE)
        .render(
            manifest=manifest,
            verdict=sentence,
            bad=bad,
            records=records_called(manifest.format),
            statistics=statistics,
            features=features,
            relations=relations,
            rows=[dict(itertools.islice(row.items(), ROW_COLUMNS)) for row in rows],
            columns=len(rows[0]) if rows else 0,
            splits=list(manifest.splits),
            groups=groups,
            looked=looked,
            inputs=sorted((i for i in manifest.inputs if i.rejected), key=lambda i: -i.rejected)[:FILES],
            phases=phases,
            images=images or {},
            leakage=leaks.shown(leakage) if leakage else None,
            pictures=pictures or {},
            texts=texts or {},
            pictured=PICTURED,
            drift=section(comparisons),
            explained=EXPLAINED,
        )
    )
    return page


def verdict(
    manifest: Manifest,
    features: Sequence[Feature],
    comparisons: Sequence[Mapping[str, Any]],
    leakage: Mapping[str, Any] | None,
) -> tuple[str, bool]:
    """Says in a sentence what became of the records and what to look at; and whether there is anything."""
    records, look = records_called(manifest.format), []
    fate = f"{manifest.written:,} written"
    if manifest.read == manifest.written:
        fate = "all written"
    elif manifest.rejected:
        share = percent(manifest.rejected / max(1, manifest.read))
        fate, look = f"{manifest.rejected:,} ({share}) rejected", [f"the rejected {records}"]
    telling = [feature.name for feature in features if feature.leaks]
    if telling:
        look.append(f"{_listed(telling)}, which {'tells' if len(telling) == 1 else 'tell'} the label alone")
    shared = any((leakage or {}).get(kind.section, {}).get(kind.key) for kind in SHARED)
    if shared:
        look.append(f"the {records} that splits share")
    drifted = [
        f["name"] for comparison in comparisons for f in comparison["features"] if f["verdict"] in ("warn", "fail")
    ]
    if drifted:
        look.append(f"the drift of {_listed(drifted)}")
    if manifest.warnings and not look:
        names = [warning.feature for warning in manifest.warnings if warning.feature]
        look.append(f"the warnings{f' about {_listed(names)}' if names else ''}")
    read = f"{counted(manifest.read, records)} read, {fate}"
    return (
        f"{read}; look at {', and at '.join(look)}." if look else f"{read}; nothing was found that needs a look.",
        bool(look),
    )


def _listed(names: Iterable[str]) -> str:
    return few([short(name, 40) for name in dict.fromkeys(names)], 3)


def verdict_of(comparisons: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    """Says in a sentence what a comparison shows, and whether a feature drifted beyond its threshold."""
    worst = [comparison for comparison in comparisons if comparison["verdict"] in ("fail", "warn")]
    if worst:
        names = [f["name"] for comparison in worst for f in comparison["features"] if f["verdict"] in ("fail", "warn")]
        return f"Drifted: {_listed(names)} beyond the threshold.", True
    names = list(dict.fromkeys(f["name"] for comparison in comparisons for f in comparison["features"] if f["drift"]))
    if not names:
        return "Not drifted: no feature differs by more than chance explains.", False
    judged = any(comparison["verdict"] == "ok" for comparison in comparisons)
    why = "none beyond its threshold" if judged else "and the schema sets no `drift:` threshold to judge that by"
    differ = "1 feature differs" if len(names) == 1 else f"{len(names):,} features differ"
    start = "Not drifted" if judged else "Not judged"
    return f"{start}: {differ} by more than chance explains ({_listed(names)}), {why}.", False


def templates(*packages: str, **filters: Callable[..., str]) -> Any:
    """Makes an environment of packages' templates and the frame of all pages, `base.html`; all values are escaped."""
    import jinja2

    made = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package, "") for package in (*packages, __package__)]),
    )
    made.filters |= {"counted": counted, **filters}
    made.globals["colors"] = PAIRS
    return made


@functools.cache
def _environment() -> Any:
    return templates(number=readable, percent=percent, duration=duration, shown=shown, size=size, ending=ending)


def ending(path: str) -> str:
    """Returns the end of a long path: its folder's name and its own."""
    return "/".join(path.split("/")[-2:])


def shown(raw: bytes) -> str:
    """Shows the beginning of a record's bytes as text: what is no character, or none that prints, is escaped."""
    text = raw[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return f"{text} ... ({len(raw):,} bytes)" if len(raw) > SHOWN_BYTES else text


COMPARISON_PAGE = "comparison.html"
EXPLAINED = (
    "The distance is 0 where two sets of values are alike, and 1 where they have nothing in common. Of texts and "
    "categories it is the largest difference between the shares of one value (L-infinity); of numbers it compares the "
    "shares of ten ranges (Jensen-Shannon divergence). A distance of up to the one under noise can come from chance "
    "alone. Missing values are not part of the distance, and have a column of their own."
)


def page(title: str, comparisons: Sequence[Mapping[str, Any]]) -> str:
    """Renders the page of a comparison.

    Args:
      title: its heading.
      comparisons: as `schemas.comparison.Comparison.as_json` has them.
    """
    sentence, bad = verdict_of(comparisons)
    values = {"title": title, "verdict": sentence, "bad": bad, "explained": EXPLAINED, "drift": section(comparisons)}
    return str(_environment().get_template(COMPARISON_PAGE).render(values))


PART = "drift.html"
DRIFTED, LEAST = 20, 5  # features of a comparison with pictures; the others are folded up
FOLDED = 100  # of these


def section(comparisons: Sequence[Mapping[str, Any]]) -> Any:
    """Renders the cards of comparisons as markup.

    Args:
      comparisons: as `schemas.comparison.Comparison.as_json` has them.
    """
    from markupsafe import Markup

    shown = [_prepared(comparison) for comparison in comparisons]
    text = _environment().get_template(PART).render(comparisons=shown) if shown else ""
    return Markup(text)  # noqa: S704 - the template has escaped it


def _prepared(comparison: Mapping[str, Any]) -> dict[str, Any]:
    features = comparison["features"]
    exceed = sum(feature["verdict"] in ("fail", "warn") for feature in features)
    drifted = sum(feature["drift"] > 0 for feature in features)
    count = max(LEAST, exceed, min(DRIFTED, drifted))
    names = comparison["first"], comparison["second"]
    first = [{**feature, "chart": drawn(bars(feature["cells"], names))} for feature in features[:count]]
    rest = [{**feature, "chart": ""} for feature in features[count : count + FOLDED]]
    more = features[count + FOLDED :]
    most = max((feature["drift"] for feature in more), default=0.0)
    return {**comparison, "shown": first, "rest": rest, "more": len(more), "most": most}
