"""The space of a search, as it is written on a command line, and the values that trials get."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.tune.space import TrialCommand, as_typed, read_space
from millrace.tune.study import Study
from schemas.dataset import OpenDataset
from schemas.errors import UsageError


@given(st.text())
def test_any_text_that_is_no_space_is_a_usage_error_that_names_it(text: str) -> None:
    try:
        read_space([text])
    except UsageError as error:
        assert f"--space {text}" in str(error)  # noqa: PT017 - most texts are mistakes, and some are not


@pytest.mark.parametrize("search", ["bayesian", "random"])
def test_the_same_seed_draws_the_same_values(late: OpenDataset, tmp_path: Path, search: str) -> None:
    """Also of a trial that goes on after an interruption, in its folder."""
    trial = TrialCommand({"data_dir": late.path}, ("learning_rate=float:0.1:1",))

    def drawn(folder: str, seed: int) -> list[float]:
        (tmp_path / folder).mkdir()
        rates = []
        for interrupted in (False, True, False):
            study = Study(str(tmp_path / folder), trial, late, "accuracy")
            begun = study.next_trial(search, 20, seed)
            if interrupted:
                study = Study(str(tmp_path / folder), trial, late, "accuracy")
                assert study.model_dir(study.next_trial(search, 20, seed)) == study.model_dir(begun)
            rates.append(begun.params["learning_rate"])
            study._study.tell(study._study.trials[-1].number, 0.5)
        return rates

    rates = drawn("a", 1)
    assert len(set(rates)) == 3
    assert drawn("b", 1) == rates
    assert drawn("c", 2) != rates


def draw(*texts: str) -> dict[str, object]:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)).ask(read_space(texts)).params


@pytest.mark.parametrize("log", ["", ":log"])
def test_values_are_of_the_kind_and_range_that_is_asked_for(log: str) -> None:
    values = draw(f"rate=float:0.001:0.002{log}", f"size=int:3:9{log}", "layers=categorical:64,64:8")
    rate, size = float(as_typed(values["rate"])), int(as_typed(values["size"]))
    assert (0.001 <= rate <= 0.002, 3 <= size <= 9, values["layers"] in ("64,64", "8")) == (True, True, True)


def test_a_logarithmic_scale_lays_as_many_values_below_10_as_below_100() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    rates = [study.ask(read_space(["rate=float:1:10000:log"])).params["rate"] for _ in range(40)]
    assert sum(rate < 100 for rate in rates) / 40 == pytest.approx(0.5, abs=0.15)
