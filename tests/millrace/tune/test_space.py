"""What is searched, as it is written on a command line or in a file; mistakes are one line each and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.tune.space import CATEGORICAL, DISCRETE, DOUBLE, INTEGER, Parameter, read_parameters
from schemas.errors import UsageError

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
