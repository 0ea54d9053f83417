"""What the gate says about two models' answers: worse, no worse, or that the rows cannot tell."""

from __future__ import annotations

import re

import numpy as np
import pytest

from schemas.spec.gates import PromoteRules
from trainer.evaluation.predictions import Answers
from trainer.evaluation.scoring import Scored
from trainer.evaluation.slices import Slice
from trainer.promotion.gate import judge, metrics_of


def model(right: np.ndarray) -> Answers:
    """Answers that are right on some rows, of two classes."""
    rows = len(right)
    label = np.arange(rows) % 2
    score = np.where(label == right, 0.8, 0.2)
    return Answers(label, np.ones(rows), np.where(right, label, 1 - label), score, np.where(right, 0.2, 1.6))


def scored(candidate: np.ndarray, serving: np.ndarray | None, slices: tuple[Slice, ...] = (), answered=None) -> Scored:
    models = [model(candidate), *([model(serving)] if serving is not None else [])]
    given = answered or tuple(np.ones(len(candidate), bool) for _ in models)
    return Scored(tuple(models), given, slices, ("no", "yes"))


def right(rows: int, share: float, *, from_end: bool = False) -> np.ndarray:
    flags = np.arange(rows) < share * rows
    return flags[::-1] if from_end else flags


@pytest.mark.parametrize(
    ("rows", "candidate", "serving", "verdict"),
    [
        (10_000, 0.90, 0.80, "no_worse"),
        (10_000, 0.80, 0.80, "no_worse"),
        (10_000, 0.795, 0.80, "no_worse"),  # within the margin, and so many rows tell it
        (10_000, 0.75, 0.80, "worse"),
        (20, 0.80, 0.80, "undecided"),  # 20 rows cannot tell 1 %
        (20, 0.75, 0.80, "undecided"),
        (20, 0.20, 0.95, "worse"),  # but they can tell this
        (500, 0.79, 0.80, "undecided"),
    ],
)
def test_the_verdict_is_what_the_rows_can_tell(rows, candidate, serving, verdict):
    found = judge(scored(right(rows, candidate), right(rows, serving)), PromoteRules(), ["accuracy"], {})
    assert found.metrics[0].verdict == verdict
    assert bool(found.refusals) == (verdict == "worse")
    assert bool(found.doubts) == (verdict == "undecided")


def test_a_doubt_says_how_many_rows_would_tell():
    found = judge(scored(right(500, 0.8), right(500, 0.8)), PromoteRules(margin=0.001), ["accuracy"], {})
    assert "standard error" in found.doubts[0]
    assert "rows would tell" in found.doubts[0]


@pytest.mark.parametrize(
    ("rules", "refusal"),
    [
        (PromoteRules(accuracy=0.7), None),
        (PromoteRules(accuracy=0.9), "accuracy 0.8 .* is below the schema's threshold of 0.9"),
        (PromoteRules(log_loss=0.1), "log_loss 0.48 .* is above the schema's threshold of 0.1"),
        (PromoteRules(log_loss=0.5), None),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_thresholds_hold_for_the_first_export_too(rules, refusal, first):
    serving = None if first else right(5000, 0.8)
    found = judge(scored(right(5000, 0.8), serving), rules, metrics_of(rules, classes=2), {})
    if refusal is None:
        assert found.refusals == ()
    else:
        (said,) = found.refusals
        assert re.search(refusal, said)


def test_a_slice_that_falls_refuses_though_the_whole_gains():
    rows = np.arange(10_000)
    part = rows < 500
    serving = rows % 5 != 0
    candidate = np.where(part, rows % 2 == 0, rows % 10 != 0)  # from 80 to 50 % there, from 80 to 90 elsewhere
    slices = (Slice("work", "a", part), Slice("work", "b", ~part), Slice("work", "few", rows < 10))
    found = judge(scored(candidate, serving, slices), PromoteRules(slices=("work",)), ["accuracy"], {})
    assert found.metrics[0].verdict == "no_worse"
    assert [(s.value, s.verdict) for s in found.slices] == [("a", "worse"), ("b", "no_worse")]
    assert found.notes == ("1 slices of fewer than 30 rows were not judged",)
    (refusal,) = found.refusals
    assert "where work is 'a' falls from 0.8 to 0.5" in refusal


def test_forty_slices_of_equal_models_refuse_nothing():
    rng = np.random.default_rng(1)
    rows = 4000
    parts = tuple(Slice("x", str(i), np.arange(rows) % 40 == i) for i in range(40))
    refused = 0
    for _ in range(40):
        one, other = (rng.random(rows) < 0.8 for _ in range(2))
        refused += bool(judge(scored(one, other, parts), PromoteRules(slice_margin=0.0), ["accuracy"], {}).refusals)
    assert refused <= 8  # 5 % of 40 is 2


def test_an_export_that_leaves_rows_unanswered_is_refused_and_is_compared_on_what_both_answer():
    rows = 4000
    everything, half = np.ones(rows, bool), np.arange(rows) % 2 == 0
    found = judge(
        scored(right(rows, 0.8), right(rows, 0.8), answered=(half, everything)), PromoteRules(), ["accuracy"], {}
    )
    assert found.metrics[0].rows == 2000
    assert "gives no prediction for 2,000 of 4,000 rows" in found.refusals[0]


def test_the_metrics_that_are_compared():
    assert metrics_of(PromoteRules(), classes=2) == ("accuracy", "auc")
    assert metrics_of(PromoteRules(log_loss=1.0), classes=7) == ("accuracy", "log_loss")
    assert metrics_of(PromoteRules(), classes=0) == ("root_mean_squared_error",)
