"""Tables of the figures of `benchmarks.training` and `benchmarks.shuffle_quality`."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.kept import Kept

TRAINING, SHUFFLE = "training", "shuffle"  # the names of their files


def training(found: Kept | None) -> str:
    """Steps per second of each case, in Markdown."""
    if found is None:
        return "(not measured)"
    lines = ["| model | batch | with its input | batch in memory | input alone | share of a step that is input |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for title, figures in found.figures.items():
        rates = (f"{1 / figures[way]['seconds']:,.1f} steps/s" for way in ("training", "memory", "alone"))
        lines.append(f"| {title} | {figures['batch_size']} | {' | '.join(rates)} | {figures['share']:.0%} |")
    return "\n".join([*lines, "", found.told()])


def shuffle(found: Kept | None) -> str:
    """The stored scores, as a Markdown table."""
    if found is None:
        return "(not measured)"
    runs = found.figures.get("runs", 1)
    return f"{scores(found.figures)}\n\nRuns, each with its seed: {runs}."


def scores(found: dict[str, Any]) -> str:
    """Scores as a Markdown table, with the values by chance. Training has no scores by shard."""
    chance = 1 / math.sqrt(found["rows"])
    spread = (found["shards"] - 1) / (found["rows"] - 1)
    lines = [f"| {found['rows']:,} rows | place | shard | neighbour | spread |", "|---|--:|--:|--:|--:|"]
    for name, each in found["scores"].items():
        shard, between = ("", "") if name.startswith("training") else (f"{each['shard']:.4f}", f"{each['spread']:.6f}")
        lines.append(f"| {name} | {each['place']:.4f} | {shard} | {each['neighbour']:.4f} | {between} |")
    chance_label = "chance: one standard deviation, and the spread expected"
    return "\n".join([*lines, f"| {chance_label} | {chance:.4f} | {chance:.4f} | {chance:.4f} | {spread:.6f} |"])
