"""What is searched, as it is written on a command line or in a file; mistakes are one line each and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.tune import command
from millrace.tune.space import CATEGORICAL, DISCRETE, DOUBLE, INTEGER, Parameter, read_parameters
from schemas.errors import UsageError
from tests.support.light_commands import assert_light

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


GOOD = ["--space", "dropout=double:0:0.5"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: --space"),
        (["--space"], "argument --space: expected at least one argument"),
        (["--space", "dropout"], "--space dropout: expected NAME=double:MIN:MAX"),
        (["--space", "none.yaml"], "--space none.yaml: no such file"),
        (["--space", "dropout=float:0:1"], "--space dropout=float:0:1: expected NAME=double:MIN:MAX"),
        (["--space", "dropout=double:0"], "expected dropout=double:MIN:MAX, or with one of :linear"),
        (["--space", "dropout=double:0:x"], "--space dropout=double:0:x: x is no number"),
        (["--space", "dropout=double:0:inf"], "inf is no number"),
        (["--space", "batch_size=integer:8:9.5"], "9.5 is no whole number"),
        (["--space", "dropout=double:0.5:0.1"], "the range ends at 0.1, which is not above 0.5, where it begins"),
        (["--space", "dropout=double:0:0.5:log"], "a log scale has no place for 0; begin above 0, or use linear"),
        (["--space", "dropout=discrete:0.2:0.1"], "expected two or more numbers that rise"),
        (["--space", "decay=categorical:true"], "expected two or more different values, such as decay=categorical"),
        ([*GOOD, *GOOD], "--space dropout=double:0:0.5: dropout is given twice"),
        (["--space", "drop=double:0:1"], "--space drop: a trial with 0 would end with: --hparams: model 'dnn' has no"),
        (["--space", "dropout=double:0:1"], "a trial with 1 would end with: --hparams of model 'dnn': dropout=1.0"),
        (["--space", "batch_size=double:8:64"], "--space batch_size: a trial with 42.608 would end with: argument"),
        (["--space", "hidden_units=categorical:64:a"], "a trial with a would end with: --hparams hidden_units=a"),
        ([*GOOD, "--hparams", "dropout=0.1"], "would end with: --hparams: dropout is given twice"),
        (["--space", "deterministic=categorical:true:false"], "a trial with true would end with: unrecognized"),
        (["--space", "model_dir=categorical:a:b"], "--space model_dir: is the same for all trials of a study"),
        (["--space", "best_metric=categorical:auc:loss"], "--space best_metric: is the same for all trials"),
        ([*GOOD, "--trials", "0"], "--trials 0: must be 1 or more"),
        ([*GOOD, "--parallel_trials", "0"], "--parallel_trials 0: must be 1 or more"),
        ([*GOOD, "--failed_trials", "0"], "--failed_trials 0: must be 1 or more"),
        ([*GOOD, "--timeout_hours", "nan"], "--timeout_hours nan: must be more than 0, and finite"),
        ([*GOOD, "--search", "grid"], "--search grid: dropout is a double, of which there is no grid"),
        ([*GOOD, "--search", "best"], "argument --search: invalid choice: 'best'"),
        ([*GOOD, "--model_dir", "m"], "unrecognized arguments: --model_dir m"),
        ([*GOOD, "--model", "dn"], "--model dn: unknown model; choose from linear, dnn"),
        ([*GOOD, "--max_steps", "0"], "--max_steps 0: must be 1 or more"),
        ([*GOOD, "--strategy", "multi_worker"], "--strategy multi_worker: a trial is one process"),
        ([*GOOD, "--study", "gs://b/study"], "--study gs://b/study: must be on local disk"),
        ([*GOOD, "--study", "a[0]"], "--study a[0]: TensorFlow takes [0] for a pattern"),
        ([*GOOD], "nowhere"),  # the dataset
    ],
)
def test_a_mistake_is_refused_in_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main(["--data_dir", str(tmp_path / "nowhere"), "--study", str(tmp_path / "study"), *argv]) == 2
    said = capsys.readouterr().err
    assert message in said
    lines = [line for line in said.splitlines() if not line.startswith("See ")]
    assert len(lines) == 1, said
    assert lines[0].startswith("error: ")
    assert not (tmp_path / "study").exists()


def test_a_mistake_is_answered_before_anything_heavy_is_imported() -> None:
    argv = ["--data_dir", "d", "--study", "s", "--space", "dropout=double:0:1"]
    assert_light("millrace.tune.command", argv, code=2, message="a trial with 1 would end with")
