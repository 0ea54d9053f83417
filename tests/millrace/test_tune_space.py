"""The space of a search, as it is written on a command line, and the values that trials get."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.tune.space import Parameter, TrialCommand, read_parameters
from millrace.tune.study import Study
from schemas.dataset import OpenDataset
from schemas.errors import UsageError

NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters=":=\n"), min_size=1)
NUMBERS = {"float": st.floats(1e-9, 1e9).map(str), "int": st.integers(1, 10**9).map(str)}


@st.composite
def parameters(draw: st.DrawFn) -> Parameter:
    kind = draw(st.sampled_from(["float", "int", "categorical"]))
    if kind == "categorical":
        return Parameter(draw(NAMES), kind, tuple(draw(st.lists(TEXTS, min_size=2, unique=True))))
    ends = draw(st.lists(NUMBERS[kind], min_size=2, max_size=2, unique_by=float))
    return Parameter(draw(NAMES), kind, tuple(sorted(ends, key=float)), draw(st.booleans()))


@given(st.lists(parameters(), min_size=1, unique_by=lambda parameter: parameter.name))
def test_a_space_is_read_as_it_is_written(space: list[Parameter]) -> None:
    assert read_parameters([str(parameter) for parameter in space]) == tuple(space)


@given(st.text())
def test_any_other_text_is_a_usage_error_that_names_it(text: str) -> None:
    try:
        (parameter,) = read_parameters([text])
    except UsageError as error:
        assert f"--space {text}" in str(error)  # noqa: PT017 - most texts are mistakes, and some are not
    else:
        assert str(parameter) == text


@pytest.mark.parametrize("search", ["bayesian", "random"])
def test_the_same_seed_draws_the_same_values(late: OpenDataset, tmp_path: Path, search: str) -> None:
    """Also of a trial that goes on after an interruption."""
    trial = TrialCommand({"data_dir": late.path}, read_parameters(["learning_rate=float:0.1:1"]))

    def drawn(folder: str, seed: int) -> list[float]:
        (tmp_path / folder).mkdir()
        rates = []
        for _ in range(3):
            study = Study(str(tmp_path / folder), trial, late, "accuracy")
            rates += [study.next_trial(search, 20, seed).params["learning_rate"] for _ in range(2)]
            study._study.tell(len(rates) // 2 - 1, 0.5)
        return rates

    rates = drawn("a", 1)
    assert (rates[::2], len(set(rates))) == (rates[1::2], 3)
    assert drawn("b", 1) == rates
    assert drawn("c", 2) != rates


@pytest.mark.parametrize("log", ["", ":log"])
def test_values_lie_in_their_range_as_they_are_typed(log: str) -> None:
    rate, size = read_parameters([f"rate=float:0.00012345678:0.00012345679{log}", f"size=int:3:9{log}"])
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(20):
        trial = study.ask()
        assert 0.00012345678 <= float(rate.as_typed(rate.suggest(trial))) <= 0.00012345679
        assert 3 <= int(size.as_typed(size.suggest(trial))) <= 9


@pytest.mark.parametrize(("log", "share"), [("", 0.5), (":log", 0.9)])
def test_scales_lay_values_where_they_say(log: str, share: float) -> None:
    """Of 40 values of 1 to 10,000: how many are in the lower half."""
    (rate,) = read_parameters([f"rate=float:1:10000{log}"])
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    lower = sum(float(rate.suggest(study.ask())) < 5000 for _ in range(40))
    assert lower / 40 == pytest.approx(share, abs=0.15)
