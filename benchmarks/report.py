"""Writes the plots, and the tables of results between markers in the documentation.

python -m benchmarks.report        # from benchmarks/results.json, without measuring
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks import curves, goals, kept, measured_tables, results
from benchmarks.contests import CONTESTS, OURS, Contest
from benchmarks.results import Medians, Results, shown

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")


def table(found: Results, contest: Contest) -> str:
    """One contest as a Markdown table."""
    medians = found.medians(contest.name)
    if not medians:
        return "(not measured)"
    each, ours = contest.unit.removesuffix("s"), medians.get(OURS)
    inputs = "" if found.of_real_data(contest.name) else ", synthetic samples"
    lines = [
        f"| {contest.title}{inputs} | {contest.unit}/s | Millrace's speedup | CPU per {each} | Millrace's CPU saving "
        "| peak memory | entire process | runs |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    bounds = {entry.name for entry in contest.entries if entry.bound}
    for name, way in medians.items():
        own = name == OURS
        label = f"**{name}**" if own else f"*{name}*" if name in bounds else name
        times = "" if own or not ours else f"{ours.rate / way.rate:.1f}x"
        cpu_times = "" if own or not (ours and ours.cpu_each) else f"{way.cpu_each / ours.cpu_each:.1f}x"
        cells = (
            label,
            shown(way.rate),
            times,
            _cpu(way.cpu_each),
            cpu_times,
            _memory(way),
            _process(way),
            str(way.runs),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cpu(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.1f} µs"


def _memory(way: Medians) -> str:
    return "" if way.peak_bytes is None else f"{way.peak_bytes / 2**30:.2f} GB"


def _process(way: Medians) -> str:
    return f"{way.whole_seconds:.1f} s, CPU {way.whole_cpu:.1f} s"


def startup(found: Results) -> str:
    """The cost of a small job, next to that of the imports."""
    medians = found.medians("startup")
    if not medians:
        return "(not measured)"
    lines = ["| 1,000 rows | CPU of the process | entire process | peak memory |", "|---|--:|--:|--:|"]
    for name, way in medians.items():
        lines.append(f"| {name} | {way.whole_cpu:.1f} s | {way.whole_seconds:.1f} s | {_memory(way)} |")
    return "\n".join(lines)


def table_of(found: Results, contest: Contest) -> str:
    """A contest's table: rates, or seconds for the start-up."""
    return startup(found) if contest.name == "startup" else table(found, contest)


def environment(found: Results) -> str:
    """The machine and the versions of the latest measurement."""
    if not found.contests:
        return "(not measured)"
    last = max(found.contests.values(), key=lambda contest: contest["machine"]["date"])["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in last.items() if k not in _MACHINE)
    synthetic = [name for name in found.contests if not found.of_real_data(name)]
    inputs = f"the real files, except synthetic samples for {', '.join(synthetic)}" if synthetic else "the real files"
    loads = ", ".join(f"{name} {contest['load']}" for name, contest in found.contests.items())
    return (
        f"{last['processor']}, {last['cores']} cores, {last['memory']}, {last['system']}, Python {last['python']}; "
        f"{versions}. Measured up to {last['date']} on {inputs}. Load average at the start of each "
        f"comparison, to which the previous one contributes; if it is high, compare CPU and not wall time: {loads}."
    )


_MACHINE = ("processor", "cores", "memory", "system", "python", "real_data", "date")


def blocks(found: Results) -> dict[str, str]:
    """The contents between the markers, by name."""
    return {
        **{contest.name: table_of(found, contest) for contest in CONTESTS},
        "environment": environment(found),
        "goals": goals.table(found),
        "training": measured_tables.training(kept.load(measured_tables.TRAINING)),
        "scale": curves.table(kept.load(curves.NAME)),
        "shuffle": measured_tables.shuffle(kept.load(measured_tables.SHUFFLE)),
        "summary": goals.summary(found),
    }


def fill(text: str, contents: dict[str, str]) -> str:
    """Replaces the text between `<!-- bench: NAME -->` and `<!-- /bench -->` in a page."""

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
    curves.plot(kept.load(curves.NAME))


def main() -> int:
    """Writes tables and plots from the stored results."""
    write(results.load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
