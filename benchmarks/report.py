"""The tables and goals of all figures, between markers in the documentation, and the plots."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import plots, results
from benchmarks.contests import (
    ALONE,
    BARE,
    BARE_PILLOW,
    BARE_SCALED,
    CONTESTS,
    FLOOR,
    HELD,
    IMPORTS,
    ORIGINAL,
    ORIGINAL_PLAIN,
    OURS,
    OURS_LEAST,
    RAW,
    RAW_BUFFER,
    RAW_HELD,
    TFDS_HELD,
    WEBDATASET,
    WEBDATASET_TWICE,
    Contest,
)
from benchmarks.results import Kept, Medians, Results, shown

SCALE = "scale"
NOT_MEASURED = "(not measured)"


def markdown(heads: str, aligned: str, rows: Iterable[Iterable[str]]) -> str:
    """A table of its heads, the line that aligns its columns, and its rows."""
    return "\n".join([heads, aligned, *(f"| {' | '.join(cells)} |" for cells in rows)])


PLOT = plots.FOLDER / "scale.svg"


def scale_table(found: Kept) -> str:
    """Rows per second and peak memory for every number of rows and of shards, in Markdown.

    Args:
      found: a list of jobs, each with `rows`, `shards`, and the medians of its `runs`: `rows_per_second`, `seconds`,
        `peak_mb`.
    """
    jobs = found.figures
    shards = sorted({int(job["shards"]) for job in jobs})
    heads = ["1 shard" if n == 1 else f"{n} shards" for n in shards]
    rows = []
    for count in sorted({int(job["rows"]) for job in jobs}):
        of = {job["shards"]: job for job in jobs if job["rows"] == count}
        rows.append([f"{count:,}", *(_cell(of[n]) if n in of else "" for n in shards)])
    runs = min(job["runs"] for job in jobs)
    table = markdown(f"| rows | {' | '.join(heads)} |", f"|--:|{'--:|' * len(shards)}", rows)
    return f"{table}\n\n{found.told()} Runs of each: {runs}."


def _cell(job: dict[str, float]) -> str:
    return f"{job['rows_per_second']:,.0f} rows/s, {job['peak_mb']:,.0f} MB"


def scale_plot(found: Kept) -> None:
    """Draws rows per second and peak memory over rows, with a curve for each number of shards, as an SVG."""
    jobs = found.figures
    titles = {"rows_per_second": "Rows a second", "peak_mb": "Peak memory, MB"}
    with plots.svg(PLOT, [1], columns=len(titles), inches=4.5) as (_, axes):
        for axis, (key, title) in zip(axes[0], titles.items(), strict=True):
            for shards in sorted({job["shards"] for job in jobs}):
                points = sorted((job["rows"], job[key]) for job in jobs if job["shards"] == shards)
                _curve(axis, points, f"{shards:.0f} shard{'s' * (shards > 1)}")
            axis.set_xscale("log")
            axis.set_ylim(bottom=0)
            axis.set_title(title)
            axis.set_xlabel("rows of Covertype")
            counts = sorted({job["rows"] for job in jobs})
            axis.set_xticks(counts, [f"{count:,}" for count in counts], fontsize=11)
            axis.minorticks_off()
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes[0, 0].legend(frameon=False)


def _curve(axis: Any, points: list[tuple[float, float]], label: str) -> None:
    axis.plot(*zip(*points, strict=True), marker="o", label=label)


TRAINING, SHUFFLE, WIDE, GUARDS, SMALL = "training", "shuffle", "wide", "guards", "small"  # the names of their files
MODELS = "models"
GUARDED = {"covertype": 0.05, "census": 0.05, "mnist": 0.1, "covertype_6m": 0.08}  # goals: shares of a job
SMALL_SECONDS, SMALL_REST = 8, 0.25  # goals of a small training
WIDE_CPU, WIDE_MB = {("1000", "preprocess"): 20, ("5000", "preprocess"): 180}, {"1000": 2048, "5000": 4096}  # goals


def training(found: Kept) -> str:
    """Steps per second of each case, in Markdown."""
    heads = "| model | batch | steps/s with its input | batch in memory | input alone | input share |"
    rows = []
    for title, figures in found.figures.items():
        rates = (f"{1 / figures[way]['seconds']:,.1f}" for way in ("training", "memory", "alone"))
        rows.append((title, f"{figures['batch_size']}", *rates, f"{figures['share']:.0%}"))
    return f"{markdown(heads, '|---|--:|--:|--:|--:|--:|', rows)}\n\n{found.told()}"


def wide(found: Kept) -> str:
    """CPU seconds and peak memory of each command on wide tables, in Markdown."""
    rows = (
        (f"{int(columns):,}", name, f"{each['cpu']:.1f}", f"{each['peak_mb']:,.0f}")
        for columns, commands in found.figures.items()
        for name, each in commands.items()
    )
    table = markdown("| columns | command | CPU s | peak MB |", "|--:|---|--:|--:|", rows)
    return f"{table}\n\n{found.told()}"


def wide_goals(found: Kept) -> Iterator[Goal]:
    """Goals of the CPU of `preprocess` and of the dearest other command, and of the memory of `preprocess`."""
    for columns, commands in found.figures.items():
        others = sorted(commands.keys() - {"preprocess"}, key=lambda name: commands[name]["cpu"])
        for name in ("preprocess", *others[-1:]):
            each, seconds = commands[name], WIDE_CPU.get((columns, name), 30)
            what = f"{int(columns):,} columns, {name}: of {seconds} s"
            yield Goal(what, 1, each["wall"] / seconds, each["cpu"] / seconds, at_most=True, by_cpu=True)
        megabytes = WIDE_MB[columns]
        share = commands["preprocess"]["peak_mb"] / megabytes
        yield Goal(f"{int(columns):,} columns, preprocess: of {megabytes / 1024:g} GB", 1, share, None, at_most=True)


def guard_goals(found: Kept) -> Iterator[Goal]:
    """A goal of what statistics, drift and leakage take of each job; `found` are pairs of jobs by their input."""
    for name, runs in found.figures.items():
        ratios = [[run["with"][key] / run["without"][key] for run in runs] for key in ("seconds", "cpu")]
        wall, cpu = (1 - 1 / statistics.median(each) for each in ratios)
        what = f"{name}: guards, of a job"
        yield Goal(what, GUARDED[name], wall, cpu, at_most=True, by_cpu=True)


def small_goals(found: Kept) -> Iterator[Goal]:
    """Goals of trainings on 1,000 rows; `found` are `cpu` and `wall` by title and the number of steps."""
    for title, trainings in found.figures.items():
        (few, short), (many, long) = sorted((int(steps), figures) for steps, figures in trainings.items())
        own = {key: (long[key] - short[key]) * many / (many - few) for key in ("wall", "cpu")}  # of the steps alone
        what = f"{title}, {few:,} steps: of {SMALL_SECONDS} s"
        wall, cpu = (short[key] / SMALL_SECONDS for key in ("wall", "cpu"))
        yield Goal(what, 1, wall, cpu, at_most=True, by_cpu=True)
        wall, cpu = (long[key] / own[key] - 1 for key in ("wall", "cpu"))
        yield Goal(f"{title}, {many:,} steps: all else, of the steps", SMALL_REST, wall, cpu, at_most=True, by_cpu=True)


DEFAULT, TREES, LINEAR = "`tabular`, the default", "`boosted_trees`", "`linear`"
HGB, RIDGE, MLP = "HistGradientBoosting", "Ridge, LogisticRegression", "MLP"
TF_IDF = "TF-IDF + LogisticRegression"
BESIDE = {DEFAULT: (HGB, 1.03), TREES: (HGB, 1.02), LINEAR: (RIDGE, 1.02)}  # goals: at most so many times its loss
ONCE, TEXT = 1.08, 1.0  # goals: of the default model on one set; on texts
SECONDS = {"diamonds": 60}  # goals of the default model's CPU
PROTOTYPE = {"diamonds": ("loss", 287_000), "movies": ("loss", 0.530), "census": ("auc", 0.918)}  # on other splits


def models(found: Kept) -> str:
    """The scores of each set's models, and how those of this project are to those that they are held to, in Markdown.

    Args:
      found: by set: `rows`, `columns`, `cpu` seconds of `init` and `preprocess`, `classes`, `text`, and by model and
        seed the `loss` on test (squared error, or log loss), `accuracy`, `cpu` and `wall` seconds.
    """
    names = [DEFAULT, TREES, LINEAR, HGB, RIDGE, MLP]
    rows = []
    for name, each in found.figures.items():
        cells = (
            _score(each["models"].get(TF_IDF if each["text"] and model == RIDGE else model)) + _held(each, model)
            for model in names
        )
        loss = "log loss" if each["classes"] else "squared error"
        rows.append((f"{name}, {each['rows']:,} x {each['columns']}, {loss}", *cells))
    table = markdown(f"| rows x columns, loss | {' | '.join(names)} |", f"|---|{'---|' * len(names)}", rows)
    counts = sorted({len(runs) for each in found.figures.values() for runs in each["models"].values()})
    seeds = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{table}\n\n{found.told()} Seeds of each: {seeds}."


def _score(runs: dict[str, dict[str, float]] | None) -> str:
    """Mean loss ± standard deviation of several runs, accuracy if there is one, and CPU seconds."""
    if not runs:
        return ""
    losses = [each["loss"] for each in runs.values()]
    found = [statistics.mean(losses), *([statistics.stdev(losses)] if len(losses) > 1 else [])]
    places = 0 if found[0] >= 100 else 5 if found[0] < 0.1 else 4
    score = " ± ".join(f"{loss:,.{places}f}" for loss in found)
    shares = [f"{_mean(runs, 'accuracy'):.1%}"] if "accuracy" in next(iter(runs.values())) else []
    return ", ".join([score, *shares, f"{_mean(runs, 'cpu'):.0f} s"])


def _held(each: dict[str, Any], model: str) -> str:
    """The ratio to the model that it is held to, in bold where it is beyond the goal of most sets."""
    ratio = beside(each, model) if model in BESIDE else None
    if ratio is None:
        return ""
    limit = TEXT if each["text"] else BESIDE[model][1]
    return f"; {ratio:.3f}x" if ratio <= limit else f"; **{ratio:.3f}x**"


def _mean(runs: dict[str, dict[str, float]], key: str) -> float:
    return statistics.mean(run[key] for run in runs.values())


def beside(each: dict[str, Any], model: str) -> float | None:
    """A model's mean loss on a set as a multiple of that of the model that it is held to; None if one has no runs."""
    ways = [each["models"].get(way) for way in (model, TF_IDF if each["text"] else BESIDE[model][0])]
    if not all(ways):
        return None
    ours, theirs = (_mean(runs, "loss") for runs in ways if runs)
    return ours / theirs


def model_goals(found: Kept) -> Iterator[Goal]:
    """Goals of the models: the worst loss beside each rival's, that of a prototype, and the default's CPU."""
    figures = found.figures
    for model, (rival, limit) in BESIDE.items():
        named = model.partition(",")[0]
        tables = {name: beside(each, model) for name, each in figures.items() if not each["text"]}
        ratios = sorted(((ratio, name) for name, ratio in tables.items() if ratio), reverse=True)
        goals = [(ONCE, ratios[:1]), (limit, ratios[1:2])] if model == DEFAULT else [(limit, ratios[:1])]
        for most, worst in goals:
            for ratio, name in worst:
                place = "the second worst" if most == limit and model == DEFAULT else "the worst"
                what = f"{named}: {place} loss of a table ({name}), to {rival}"
                yield Goal(what, most, ratio, None, at_most=True)
        for name, each in figures.items():
            if each["text"] and (level := beside(each, model)):
                yield Goal(f"{named}: loss on {name}, to {TF_IDF}", TEXT, level, None, at_most=True)
    for name, (score, wanted) in PROTOTYPE.items():
        if name in figures:
            what = f"`tabular`: {'AUC' if score == 'auc' else 'loss'} on {name}, to a prototype's on another split"
            reached = _mean(figures[name]["models"][DEFAULT], score) / wanted
            yield Goal(what, 1, reached, None, at_most=score == "loss")
    for name, seconds in SECONDS.items():
        if name in figures:
            each = figures[name]
            wall, cpu = (_mean(each["models"][DEFAULT], key) / seconds for key in ("wall", "cpu"))
            what = f"`tabular`: {each['rows']:,} rows of {each['columns']} columns: of {seconds} s"
            yield Goal(what, 1, wall, cpu, at_most=True, by_cpu=True)


def shuffle(found: Kept) -> str:
    """The stored scores, as a Markdown table."""
    runs = found.figures.get("runs", 1)
    return f"{scores(found.figures)}\n\nRuns, each with its seed: {runs}."


def scores(found: dict[str, Any]) -> str:
    """Scores as a Markdown table, with the values by chance. Training has no scores by shard."""
    chance = 1 / math.sqrt(found["rows"])
    spread = (found["shards"] - 1) / (found["rows"] - 1)
    rows: list[tuple[str, ...]] = []
    for name, each in found["scores"].items():
        shard, between = ("", "") if name.startswith("training") else (f"{each['shard']:.4f}", f"{each['spread']:.6f}")
        rows.append((name, f"{each['place']:.4f}", shard, f"{each['neighbour']:.4f}", between))
    rows.append(("chance: one standard deviation, and the spread expected", *[f"{chance:.4f}"] * 3, f"{spread:.6f}"))
    heads = f"| {found['rows']:,} rows | place | shard | neighbour | spread |"
    return markdown(heads, "|---|--:|--:|--:|--:|", rows)


@dataclasses.dataclass(frozen=True)
class Goal:
    """A ratio that should be at least, or at most, `wanted`.

    Attributes:
      wall, cpu: the measured ratios; cpu is None for memory.
      by_cpu: whether the goal is on CPU and not on wall time.
    """

    what: str
    wanted: float
    wall: float
    cpu: float | None
    at_most: bool = False
    by_cpu: bool = False

    @property
    def value(self) -> float:
        """The ratio that the goal is about."""
        return self.cpu if self.by_cpu and self.cpu is not None else self.wall

    @property
    def met(self) -> bool:
        """Whether the measurement reaches the goal."""
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted

    @property
    def shown(self) -> str:
        """The ratio, with as many places as tell it from a goal that it misses."""
        places = next(n for n in range(2, 16) if self.met or round(self.value, n) != self.wanted)
        return f"{self.value:.{places}f}x"


def ratio(found: Results, contest: str, way: str, ours: str = OURS) -> tuple[float, float] | None:
    """How many times as fast as another way this project is: by wall time, and by CPU."""
    medians = found.medians(contest)
    if ours not in medians or way not in medians:
        return None
    own, other = medians[ours], medians[way]
    return own.rate / other.rate, other.cpu_each / own.cpu_each


def fastest_bare(images: dict[str, Medians]) -> str | None:
    """The fastest of the bounds of writing images; None if none was measured."""
    measured = [name for name in (BARE, BARE_SCALED, BARE_PILLOW) if name in images]
    return max(measured, key=lambda name: images[name].rate, default=None)


def goals(found: Results) -> list[Goal]:
    """The goals whose contests were measured."""
    out = []

    def add(what: str, wanted: float, contest: str, way: str, ours: str = OURS, *, by_cpu: bool = False) -> None:
        if (times := ratio(found, contest, way, ours)) is not None:
            out.append(Goal(what, wanted, *times, by_cpu=by_cpu))

    for name in ("covertype", "census", "mnist"):
        add(f"{name}: rate of tf.Transform's census example", 8, name, "tf.Transform, census example")
        add(f"{name}: rate of a Python loop", 3, name, "Python loop over tf.train.Example")
    if (times := ratio(found, "covertype_6m", FLOOR)) is not None:
        out.append(Goal("6,000,000 rows: the floor's time", 2.5, 1 / times[0], 1 / times[1], at_most=True))
    add("6,000,000 rows: rate of one process", 1.5, "covertype_6m", ALONE)
    memory = [found.medians(name).get(OURS) for name in ("covertype", "covertype_6m")]
    if all(way is not None and way.peak_bytes for way in memory):
        small, large = (way.peak_bytes for way in memory if way is not None)
        assert small
        assert large
        out.append(Goal("6,000,000 rows: the memory of 600,000", 1.25, large / small, None, at_most=True))
    for what, wanted, by_cpu, contest, way in (
        ("600,000 rows, few for two processes: the time of one", 1.03, False, "covertype", ALONE),
        ("1,000 rows: the CPU of the imports", 1.15, True, "startup", IMPORTS),
    ):
        medians = found.medians(contest)
        if OURS in medians and way in medians:
            own, other = medians[OURS], medians[way]
            times = own.whole_seconds / other.whole_seconds, own.whole_cpu / other.whole_cpu
            out.append(Goal(what, wanted, *times, at_most=True, by_cpu=by_cpu))
    add("images written: rate of webdataset with Pillow", 1.15, "images", WEBDATASET, by_cpu=True)
    if (bare := fastest_bare(found.medians("images"))) is not None:
        add(f"images written: rate of the fastest bound ({bare})", 0.8, "images", bare)
    for contest, megapixels, wanted in (("images_2mp", 2, 1.15), ("images_12mp", 12, 1)):
        for least, ours, theirs in ((2, OURS, WEBDATASET_TWICE), (1, OURS_LEAST, WEBDATASET)):
            what = f"{megapixels}-megapixel photos decoded at {least}x or more: rate of webdataset with Pillow"
            add(what, wanted, contest, theirs, ours, by_cpu=True)
    add("rows read: rate of the per-example parse", 10, "read_rows", "map(parse_single_example)")
    add("rows read: rate of raw records", 0.9, "read_rows", RAW)
    add("rows read, all in memory: rate of raw records", 0.9, "read_rows", RAW_HELD, HELD)
    read = "images read: rate of original files by tf.data"
    add(f"{read}, without antialiasing", 4, "read_images", ORIGINAL_PLAIN)
    add(f"{read}, with antialiasing", 4, "read_images", ORIGINAL)
    add("images read, all in memory: rate of TFDS, all in memory", 0.9, "read_images", TFDS_HELD, HELD)
    held = ((GUARDS, guard_goals), (SMALL, small_goals), (WIDE, wide_goals), (MODELS, model_goals))
    kept = [(of, results.load_kept(name)) for name, of in held]
    return [*out, *(goal for of, figures in kept if figures for goal in of(figures))]


def goals_table(found: Results) -> str:
    """The goals as a Markdown table; missed ones are in bold."""
    rows = []
    for goal in goals(found):
        wanted = f"{'≤' if goal.at_most else '≥'}{goal.wanted:g}x{' CPU' * goal.by_cpu}"
        rows.append((goal.what, wanted, goal.shown if goal.met else f"**{goal.shown}**"))
    return markdown("| goal | wanted | measured |", "|---|--:|--:|", rows)


_SUMMARY = (("covertype", "rows"), ("images", "images"), ("read_rows", "rows"))  # one of each kind of work


def summary(found: Results) -> str:
    """The README's table: a line for some contests."""
    rows = []
    for name, unit in _SUMMARY:
        medians = found.medians(name)
        if OURS not in medians:
            continue
        rates = {way: each.rate for way, each in medians.items()}
        own = {way: rate for way, rate in rates.items() if way.startswith(OURS)}
        others = sorted((rate, way) for way, rate in rates.items() if way not in (*own, *_BOUNDS, RAW_BUFFER))
        if not others:
            continue
        bounds = [way for way in (FLOOR, fastest_bare(medians), RAW, RAW_HELD) if way in rates]
        mine = (f"**{shown(rate)} {unit}/s**{way.removeprefix(OURS).replace(', ', ' ')}" for way, rate in own.items())
        theirs = (f"{way}: {shown(rate)}" for rate, way in (*others[-1:], *others[:1]))
        bound = ", ".join(shown(rates[way]) for way in bounds)
        rows.append((found.contests[name]["title"], ", ".join(mine), *theirs, bound))
    return markdown("| work | Millrace | fastest other way | slowest | bound |", "|---|---|---|---|---|", rows)


# What was said of TensorFlow 1's ways to read, and the ways of `read_rows` and `read_images` that show it.
_OLD_WAYS = {
    "this `input_fn`": ((OURS, OURS), ""),
    "the same, in memory": ((HELD, HELD), ""),
    "`feed_dict`": (("feed_dict, all in memory", "feed_dict"), "slow: not where arrays are in memory"),
    "queues, `shuffle_batch`": (
        ("queue runners, shuffle_batch",) * 2,
        "fast: only where records are costly, as photos",
    ),
    "`shuffle_batch_join`": (("queue runners, shuffle_batch_join",) * 2, "faster with more readers: not on two cores"),
    "hybrid: a Python thread feeds a queue": (
        ("custom runner, RandomShuffleQueue",) * 2,
        "the best of both: for rows, since it reads thousands at once",
    ),
    "`from_generator`": (("from_generator", "from_generator"), "slow: yes, by Python's time for each record"),
}


def old_ways(found: Results) -> str:
    """What became of old verdicts on input pipelines, in Markdown."""
    rows, images = found.medians("read_rows"), found.medians("read_images")
    head = "| way | rows/s | CPU µs/row | photos/s | CPU ms/photo | it was said, and is |"
    lines = []
    for name, ((of_rows, of_images), verdict) in _OLD_WAYS.items():
        cells = [
            cell
            for way, scale in ((rows.get(of_rows), 1e6), (images.get(of_images), 1e3))
            for cell in (("", "") if way is None else (shown(way.rate), f"{scale * way.cpu_each:,.3g}"))
        ]
        lines.append((name, *cells, verdict))
    return markdown(head, "|---|--:|--:|--:|--:|---|", lines)


_BOUNDS = (FLOOR, BARE, BARE_SCALED, BARE_PILLOW, RAW, RAW_HELD)


ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "training.md")


def table(found: Results, contest: Contest) -> str:
    """One contest as a Markdown table."""
    medians = found.medians(contest.name)
    if not medians:
        return NOT_MEASURED
    ours = medians.get(OURS)
    inputs = "" if found.of_real_data(contest.name) else ", synthetic samples"
    scale, places, cpu = (1e3, 3, "CPU ms/image") if contest.unit == "images" else (1e6, 1, "CPU µs/row")
    rows = []
    bounds = {entry.name for entry in contest.entries if entry.bound}
    for name, way in medians.items():
        own = name == OURS
        label = f"**{name}**" if own else f"*{name}*" if name in bounds else name
        speedup = "" if own or not ours else f"{ours.rate / way.rate:.1f}x"
        rows.append((label, shown(way.rate), speedup, f"{scale * way.cpu_each:.{places}f}", _memory(way)))
    heads = f"| {contest.title}{inputs} | {contest.unit}/s | speedup | {cpu} | peak GB |"
    return markdown(heads, "|---|--:|--:|--:|--:|", rows)


def _memory(way: Medians) -> str:
    return "" if way.peak_bytes is None else f"{way.peak_bytes / 2**30:.2f}"


def startup(found: Results) -> str:
    """The cost of a small job, next to that of the imports."""
    medians = found.medians("startup")
    if not medians:
        return NOT_MEASURED
    rows = ((name, _memory(way), f"{way.whole_seconds:.1f} ({way.whole_cpu:.1f})") for name, way in medians.items())
    return markdown("| 1,000 rows | peak GB | process s (CPU) |", "|---|--:|--:|", rows)


def table_of(found: Results, contest: Contest) -> str:
    """A contest's table: rates, or seconds for the start-up."""
    return startup(found) if contest.name == "startup" else table(found, contest)


def environment(found: Results) -> str:
    """The machine and the versions of the latest measurement."""
    if not found.contests:
        return NOT_MEASURED
    last = max(found.contests.values(), key=lambda contest: contest["machine"]["date"])["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in last.items() if k not in _MACHINE)
    synthetic = [name for name in found.contests if not found.of_real_data(name)]
    inputs = f"the real files, except synthetic samples for {', '.join(synthetic)}" if synthetic else "the real files"
    loads = ", ".join(f"{name} {contest['load']}" for name, contest in found.contests.items())
    return (
        f"{last['processor']}, {last['cores']} cores, {last['memory']}, {last['system']}, Python {last['python']}; "
        f"{versions}. Measured up to {last['date']} on {inputs}. Load average at the start of each "
        f"comparison (if it is high, compare CPU): {loads}."
    )


_MACHINE = ("processor", "cores", "memory", "system", "python", "real_data", "date")


_KEPT = {TRAINING: training, SCALE: scale_table, SHUFFLE: shuffle, WIDE: wide, MODELS: models}


def blocks(found: Results) -> dict[str, str]:
    """The contents between the markers, by name."""
    return {
        **{contest.name: table_of(found, contest) for contest in CONTESTS},
        "environment": environment(found),
        "goals": goals_table(found),
        **{name: NOT_MEASURED if (kept := results.load_kept(name)) is None else of(kept) for name, of in _KEPT.items()},
        "summary": summary(found),
        "old_ways": old_ways(found),
    }


def fill(text: str, contents: dict[str, str]) -> str:
    """Replaces the text between `<!-- bench: SCALE -->` and `<!-- /bench -->` in a page."""

    def put(match: re.Match[str]) -> str:
        return f"<!-- bench: {match[1]} -->\n{contents[match[1]]}\n<!-- /bench -->"

    return re.sub(r"<!-- bench: (\w+) -->.*?<!-- /bench -->", put, text, flags=re.DOTALL)


def write(found: Results) -> None:
    """Writes the tables into the pages, and the plots."""
    from benchmarks import plots

    contents = blocks(found)
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8"), contents), encoding="utf-8")
    plots.write(found)
    if (kept := results.load_kept(SCALE)) is not None:
        scale_plot(kept)


def keep(name: str, conditions: Mapping[str, str], figures: Any) -> None:
    """Stores figures as `name`.json, and updates the pages."""
    results.save_kept(name, Kept(conditions, figures))
    write(results.load())


def main() -> int:
    """Writes tables and plots from the stored results."""
    write(results.load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
