"""The body of a request: JSON as it is read, its values as arrays, and what is said of values that are not taken."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.serve.bodies import parse
from millrace.serve.model import Input, Refused
from millrace.serve.requests import array_of


def twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def oracle(text: str) -> object:
    def integer(digits: str) -> int | float:
        return int(digits) if -(2**63) <= int(digits) < 2**64 else float(digits)  # as the model would read it

    return json.loads(text, object_pairs_hook=twice, parse_int=integer)


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8)
NAMES = st.sampled_from(["x", "y", ":", 'a":', "\u00e9", ""]) | st.text(max_size=3)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(NAMES, v, max_size=4), max_leaves=12)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_json_writes_is_read(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return
    try:
        expected = oracle(text)
    except ValueError:
        with pytest.raises(Refused):
            parse(body)
        return
    np.testing.assert_equal(parse(body), expected)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NAMES, SCALARS | st.dictionaries(NAMES, SCALARS, max_size=2)), max_size=4), st.booleans())
def test_a_key_that_stands_twice_is_never_lost(pairs, in_a_list):
    text = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs) + "}"
    text = f'[{{"z":1}},{text}]' if in_a_list else text
    try:
        oracle(text)
    except ValueError:
        with pytest.raises(Refused):
            parse(text.encode())


def test_a_key_that_stands_twice_among_very_many_is_named():
    """It is looked for once, and not for each key: that took hours."""
    names = ",".join(f'"{i}":1' for i in range(500_000))
    with pytest.raises(Refused, match="an object has the key 'x' twice"):
        parse(f'{{{names},"x":1,"x":2}}'.encode())


@pytest.mark.parametrize(("begins", "ends"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("depth", [700, 1000, 1023, 100_000])
def test_what_is_nested_too_deeply_is_refused(begins, ends, depth):
    with pytest.raises(Refused, match="the body is not JSON"):
        parse((begins * depth + '"a:b"' + ends * depth).encode())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:0123456789eE+-.\\untrfalsNI', max_size=40).map(str.encode))
def test_any_bytes_are_a_value_or_an_error(body):
    try:
        found = parse(body)
    except Refused:
        return
    np.testing.assert_equal(found, oracle(body.decode()))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b'{"instances": ["\xed\xa0\x80"]}',
        b"[" * 100_000,
        b'{"instances":' + b"[" * 100_000,
        b"[" * 100_000 + b"NaN",
        b"1" * 5000,
        b"NaN" + b"1" * 5000,
        b'{"instances": [1e999]}',
        b"nan",
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_no_json(body):
    with pytest.raises(Refused, match="the body is not JSON"):
        parse(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x89PNG\r\n\x1a\nNaN", '; send JSON in UTF-8, and in it an image, or other bytes, as {"b64": "<base64>"}'),
        (
            b'--5f\r\nContent-Disposition: form-data; name="image"\r\n\r\nNaN',
            "; send JSON in UTF-8, and in it an image",
        ),
        (
            b'[{"image": {"b64": "aNaN\naaa="}}]',
            r"; write a line break in a string as \n (base64 has none here: `base64 -w0`)",
        ),
        (b'[{"age": nan}]', "; write a missing value as null"),
        (b'[{"ages": [1, None]}]', "; write a missing value as null"),
    ],
)
def test_what_programs_send_for_json(body, said):
    with pytest.raises(Refused, match=f"^the body is not JSON: .*{re.escape(said)}"):
        parse(body)


JUNK = st.one_of(
    st.none(), st.booleans(), st.text(max_size=3), st.just(10**400), st.lists(st.integers(0, 3), max_size=2)
)


@pytest.mark.parametrize("depth", [150, 300, 600, 1000, 1500, 99_999])
@pytest.mark.parametrize(
    "body", ["%s", '{"instances": %s}', '{"instances": [{"x": %s}]}', '[{"x": %s}]', '{"x": NaN, "y": %s}']
)
def test_no_depth_of_a_body_is_a_fault_of_the_server(client, body, depth):
    for nested in ("[" * depth, "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        for path in ("/predict", f"{client.model}:predict"):
            status, answer = client.post(path, (body % nested).encode())
            refused = status == 400 and "error" in answer
            assert refused or all("error" in row for row in answer["predictions"]), (status, answer)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(width=32) | st.integers(-(2**60), 2**60), min_size=1, max_size=5), st.none() | JUNK)
def test_requests_against_the_model_by_hand(client, numbers, junk):
    """The model adds 1; what is not finite gets an error, and a value that is no number fails its request."""
    rows = [{"x": x} for x in numbers]
    if junk is not None:
        rows.insert(len(rows) // 2, {"x": junk})
        assert client.predict({"instances": rows})[0] == 400
        written = [row for row in rows if finite(row["x"])]  # as plain JSON can have it
        for row, answer in zip(written, client.post("/predict", written or [{}])[1]["predictions"], strict=False):
            assert ("value" in answer) == (type(row["x"]) in (int, float) or is_number(row["x"]))
        return
    status, answer = client.predict({"instances": rows})
    assert status == 200
    for x, found in zip(numbers, answer["predictions"], strict=True):
        if math.isnan(x):
            assert found["error"] == "x: missing_value"
        elif math.isinf(x):
            assert found["error"] == "x: out_of_range"
        else:
            assert np.float32(found["value"]) == np.float32(x) + np.float32(1)


def finite(value: object) -> bool:
    return not isinstance(value, int | float) or abs(value) < 1e300  # nor NaN


def is_number(value: object) -> bool:
    """Whether a text is a number, as in a file."""
    return isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\.?\d*\s*", value, re.ASCII) is not None


AGE, SCORES, WORK = Input("age", "float32"), Input("scores", "float32", 3), Input("work", "string")


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (AGE, [1, 2.5, -0.0], [1, 2.5, 0]),
        (AGE, [float("nan"), float("inf")], [np.nan, np.inf]),
        (AGE, [1e300, -(10**300)], [np.inf, -np.inf]),  # which the model answers with out_of_range
        (AGE, [16777217], [16777216]),  # rounded as the job rounds it
        (SCORES, [[1, 2, 3], [4, 5.5, 6]], [[1, 2, 3], [4, 5.5, 6]]),
        (WORK, ["a", "", "\u00e9\x00"], [b"a", b"", b"\xc3\xa9\x00"]),
        (WORK, [{"b64": "/w=="}, {"b64": "/w"}, {"b64": ""}], [b"\xff", b"\xff", b""]),
    ],
)
def test_values_that_an_input_takes(column, values, expected):
    found = array_of(values, column, "row {}")
    assert found.dtype == (object if column.dtype == "string" else np.float32)
    np.testing.assert_array_equal(found, np.array(expected, found.dtype))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (AGE, "3", "row 1, 'age': found the string '3'; takes a number (NaN where it is missing)"),
        (AGE, True, "found true"),
        (AGE, None, "found null"),
        (AGE, [1], "found a list of 1"),
        (AGE, {}, "found an object"),
        (AGE, 10**400, "found an integer of too many digits"),
        (SCORES, [1, 2], "found a list of 2; takes a list of 3 numbers"),
        (SCORES, [1, "2", 3], "found the string '2' among its values"),
        (SCORES, [1, [2], 3], "found a list of 1 among its values"),
        (SCORES, [1, 10**400, 3], "found an integer of too many digits among its values"),
        (SCORES, 5, "found the number 5"),
        (SCORES, "abc", "found the string 'abc'"),
        (SCORES, {"a": 1, "b": 2, "c": 3}, "found an object"),
        (WORK, 3, "found the number 3; takes a string"),
        (WORK, {"b64": "???"}, "found text that is not base64"),
        (WORK, {"b64": 3}, "found an object"),
        (WORK, "\ud800", "half of a surrogate pair"),
    ],
)
def test_values_that_it_does_not_take(column, value, said):
    good = {"age": 1, "scores": [1, 2, 3], "work": ""}[column.name]
    with pytest.raises(Refused) as raised:
        array_of([good, value], column, "row {}")
    assert said in str(raised.value)
    assert raised.value.status == 400
