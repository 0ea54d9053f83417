"""What is searched, as it is written on a command line or in a file; and the study in its file, through kills."""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.tune.records import DONE, FAILED, FILE, PRUNED, UNFINISHED, Records, Settings, recorded_model
from millrace.tune.space import CATEGORICAL, DISCRETE, DOUBLE, INTEGER, Parameter, read_parameters
from schemas.errors import MillraceError, UsageError

NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters=":=\n"), min_size=1)
RANGES = {
    DOUBLE: st.floats(1e-9, 1e9).map(str),
    INTEGER: st.integers(1, 10**9).map(str),
}


@st.composite
def parameters(draw: st.DrawFn) -> Parameter:
    kind = draw(st.sampled_from([DOUBLE, INTEGER, DISCRETE, CATEGORICAL]))
    if kind in RANGES:
        ends = draw(st.lists(RANGES[kind], min_size=2, max_size=2, unique_by=float))
        scale = draw(st.sampled_from([None, "linear", "log", "reverse_log"]))
        return Parameter(draw(NAMES), kind, tuple(sorted(ends, key=float)), scale)
    if kind == DISCRETE:
        numbers = draw(st.lists(st.floats(-1e9, 1e9), min_size=2, unique=True))
        return Parameter(draw(NAMES), kind, tuple(map(str, sorted(numbers))))
    return Parameter(draw(NAMES), kind, tuple(draw(st.lists(TEXTS, min_size=2, unique=True))))


@given(st.lists(parameters(), min_size=1, unique_by=lambda parameter: parameter.name))
def test_a_space_is_read_as_it_is_written(space: list[Parameter]) -> None:
    assert read_parameters([str(parameter) for parameter in space], "--space") == tuple(space)


@given(st.text())
def test_any_other_text_is_a_usage_error_that_names_it(text: str) -> None:
    try:
        (found,) = read_parameters([text], "--space")
    except UsageError as error:
        assert f"--space {text}" in str(error)  # noqa: PT017 - most texts are mistakes, some are none
    else:
        assert str(found) == text


def test_a_file_holds_the_same(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(
        "learning_rate: double:0.0001:0.1:log\nhidden_units: categorical:64,64:128  # two widths\n"
    )
    found = read_parameters([str(tmp_path / "space.yaml"), "dropout=double:0:0.5"], "--space")
    assert [str(each) for each in found] == [
        "learning_rate=double:0.0001:0.1:log",
        "hidden_units=categorical:64,64:128",
        "dropout=double:0:0.5",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "expected lines of the form NAME: KIND:VALUES"),
        ("a: [1, 2]", "expected lines of the form NAME: KIND:VALUES"),
        ("a: {min: 1}", "expected lines of the form NAME: KIND:VALUES"),
        ("a: double:1:0", "a: double:1:0: the range ends at 0, which is not above 1"),
        ("a: double:0:1\na: double:0:2", "the key 'a' is given twice"),
        ("a: *b", "aliases are not allowed"),
        ("", "the file is empty"),
    ],
)
def test_mistakes_in_a_file_name_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_parameters([str(path)], "--space")
    assert str(path) in str(error.value)
    assert message in str(error.value)


SPACE = ("rate=double:0.001:0.1:log", "units=categorical:8:16,8")


def opened(folder: Path, *space: str, seed: int | None = 1, **asked: Any) -> Records:
    """The study of a folder, as a process opens it when it starts."""
    folder.mkdir(exist_ok=True)
    parameters = read_parameters(space or SPACE, "--space")
    how = Settings(study=str(folder), parameters=parameters, **asked)
    same = {"space": [str(parameter) for parameter in parameters]}
    return Records(how, same, higher=True, seed=seed, resource=(10, 50))


def test_a_study_keeps_the_model_that_no_flag_names(tmp_path: Path) -> None:
    assert recorded_model(str(tmp_path)) is None
    settings = Settings(study=str(tmp_path), parameters=read_parameters(SPACE, "--space"))
    for model in ("tabular", "tabular"):
        Records(settings, {"model": model}, higher=True, seed=1, resource=(10, 50))
        assert recorded_model(str(tmp_path)) == "tabular"
    opened(tmp_path / "earlier")  # of release 0.2, whose default it was
    assert recorded_model(str(tmp_path / "earlier")) == "dnn"
    earlier = Settings(study=str(tmp_path / "earlier"), parameters=settings.parameters)
    Records(earlier, {"model": "dnn"}, higher=True, seed=1, resource=(10, 50))
    with pytest.raises(UsageError, match="holds a study with another model: dnn, not linear"):
        Records(earlier, {"model": "linear"}, higher=True, seed=1, resource=(10, 50))


def value_of(values: Any) -> float:
    """How well a trial does."""
    return float(values["rate"]) + len(values["units"])


def run(records: Records, trials: int) -> None:
    for _ in range(trials):
        trial = records.begin()
        found = value_of(trial.values)
        records.report(trial.number, 10, found)
        records.end(trial.number, DONE, best=(found, 10), seconds=1.0)


def test_a_trial_is_as_it_was_noted(tmp_path: Path) -> None:
    records = opened(tmp_path)
    first, second = records.begin(), records.begin()
    assert (first.number, first.state, second.number) == (1, UNFINISHED, 2)
    records.report(1, 10, 0.5)
    records.report(1, 20, 0.75)
    records.report(1, 30, float("nan"))
    records.end(1, DONE, best=(0.75, 20), seconds=12.5)
    records.end(2, FAILED, best=None, why="the loss became NaN")
    records.end(records.begin().number, PRUNED, best=(0.25, 10), why="others were better")
    records.note_metric("accuracy")
    again = opened(tmp_path)
    assert again.metric == "accuracy"
    done, failed, pruned = again.trials()
    assert (done.state, done.value, done.step, done.seconds) == (DONE, 0.75, 20, 12.5)
    assert done.evaluations == {10: 0.5, 20: 0.75}
    assert done.values == first.values
    assert (failed.state, failed.value, failed.why) == (FAILED, None, "the loss became NaN")
    assert (pruned.state, pruned.value, pruned.why) == (PRUNED, 0.25, "others were better")


@pytest.mark.parametrize("search", ["bayesian", "random"])
def test_with_a_seed_a_study_that_is_taken_up_tries_the_same(tmp_path: Path, search: str) -> None:
    whole = opened(tmp_path / "whole", search=search, trials=9)
    run(whole, 9)
    for _ in range(9):
        run(opened(tmp_path / "parts", search=search, trials=9), 1)
    parts = opened(tmp_path / "parts", search=search, trials=9)
    assert [t.values for t in whole.trials()] == [t.values for t in parts.trials()]
    assert len({t.values["rate"] for t in whole.trials()}) == 9
    other = opened(tmp_path / "other", search=search, trials=9, seed=2)
    run(other, 1)
    assert other.trials()[0].values != whole.trials()[0].values


def test_trials_that_were_interrupted_keep_their_numbers_and_values(tmp_path: Path) -> None:
    records = opened(tmp_path)
    run(records, 1)
    running = [records.begin(), records.begin()]
    records.report(2, 10, 0.5)
    again = opened(tmp_path)
    assert again.give_again() == [2, 3]
    assert [again.begin() for _ in running] == running
    again.end(3, FAILED, best=None, why="as before")
    third = opened(tmp_path)
    assert third.give_again() == [2]
    assert third.begin().values == running[0].values
    third.report(2, 10, 0.5)
    third.end(2, DONE, best=(0.5, 10))
    run(third, 1)
    assert [(t.number, t.state) for t in third.trials()] == [(1, DONE), (2, DONE), (3, FAILED), (4, DONE)]


def test_a_process_may_be_killed_while_it_gives_trials_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    begun = opened(tmp_path).begin()
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "tell", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path).give_again()
    again = opened(tmp_path)
    again.give_again()
    assert again.begin() == begun
    assert len(again.trials()) == 1
    again.end(1, DONE, best=(1.0, 10))
    assert again.begin().number == 2


def test_a_grid_is_tried_whole_and_each_combination_once(tmp_path: Path) -> None:
    space = ("size=integer:1:3", "units=categorical:8:16,8", "width=discrete:0.5:1")
    tried = []
    for _ in range(2):  # processes
        records = opened(tmp_path, *space, search="grid", trials=20)
        records.plan()
        for _ in range(6):
            trial = records.begin()
            tried.append(tuple(trial.values.values()))
            records.end(trial.number, DONE, best=(1.0, 10))
    assert collections.Counter(tried) == dict.fromkeys(
        ((size, units, width) for size in "123" for units in ("8", "16,8") for width in ("0.5", "1")), 1
    )


def test_a_space_of_few_combinations_is_a_grid(tmp_path: Path) -> None:
    few = read_parameters(["size=integer:1:3", "units=categorical:8:16,8"], "--space")
    how = Settings(study=str(tmp_path), parameters=few, trials=20)
    assert (how.is_grid, how.most) == (True, 6)
    how = Settings(study=str(tmp_path), parameters=few, trials=5)
    assert (how.is_grid, how.most) == (False, 5)
    assert Settings(study=str(tmp_path), parameters=read_parameters(SPACE, "--space"), trials=20).most == 20


@settings(max_examples=10)
@given(
    st.floats(1e-6, 1e3),
    st.floats(1.001, 1e4),
    st.sampled_from(["", ":linear", ":log", ":reverse_log"]),
    st.integers(0, 9),
)
def test_values_as_they_are_typed_lie_in_their_range(
    tmp_path_factory: pytest.TempPathFactory, least: float, factor: float, scale: str, seed: int
) -> None:
    ends = least, least * factor
    space = f"rate=double:{ends[0]}:{ends[1]}{scale}", f"size=integer:3:{3 + int(factor)}{scale}"
    records = opened(tmp_path_factory.mktemp("study"), *space, seed=seed, search="random")
    for _ in range(3):
        values = records.begin().values
        assert ends[0] <= float(values["rate"]) <= ends[1]
        assert 3 <= int(values["size"]) <= 3 + int(factor)


@pytest.mark.parametrize(("scale", "share"), [("linear", 0.5), ("log", 0.9), ("reverse_log", 0.1)])
def test_scales_lay_values_where_they_say(tmp_path: Path, scale: str, share: float) -> None:
    """Of 40 values of 1 to 10,000: how many are in the lower half."""
    records = opened(tmp_path, f"rate=double:1:10000:{scale}", search="random")
    lower = sum(float(records.begin().values["rate"]) < 5000 for _ in range(40))
    assert lower / 40 == pytest.approx(share, abs=0.15)


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_what_is_worse_than_others_is_pruned(tmp_path: Path, pruner: str) -> None:
    records = opened(tmp_path, pruner=pruner)
    pruned: dict[int, list[int]] = {}
    for number in range(1, 13):
        value = 1.0 if number <= 6 else 0.1
        trial = records.begin()
        for step in (10, 20, 30, 40, 50):
            if records.report(trial.number, step, value + step / 1000):
                pruned.setdefault(step, []).append(trial.number)
                break
        records.end(trial.number, DONE, best=(value, 50))
    assert pruned
    assert all(number > 6 for numbers in pruned.values() for number in numbers) or pruner == "hyperband"
    assert 10 not in pruned or pruner == "hyperband"


def test_none_is_pruned_if_not_asked_for(tmp_path: Path) -> None:
    records = opened(tmp_path, pruner="none")
    for value in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0):
        trial = records.begin()
        assert not any(records.report(trial.number, step, value) for step in (10, 20, 30))
        records.end(trial.number, DONE, best=(value, 30))


def test_another_space_is_another_study(tmp_path: Path) -> None:
    run(opened(tmp_path), 1)
    with pytest.raises(UsageError) as error:
        opened(tmp_path, "rate=double:0.001:1:log")
    assert str(error.value) == (
        f"--study {tmp_path}: holds a study with another space: rate=double:0.001:0.1:log units=categorical:8:16,8, "
        "not rate=double:0.001:1:log; use another --study, or ask for the same"
    )


@pytest.mark.parametrize("content", [b"not a study" * 100, b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(MillraceError, match="the study cannot be read or written: ") as error:
        opened(tmp_path)
    assert str(error.value).startswith(str(tmp_path / FILE))
    assert (tmp_path / FILE).read_bytes() == content


def test_any_folder_will_do(tmp_path: Path) -> None:
    for name in ("a b", "{SCHEMA_VERSION}", "50%", "ü?x=1#y"):
        run(opened(tmp_path / name), 1)
        assert len(opened(tmp_path / name).trials()) == 1
        assert os.listdir(tmp_path / name) == [FILE]
