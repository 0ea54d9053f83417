"""The body of a request: JSON as it is read, and no body that is a fault of the server."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.serve.bodies import parse
from millrace.serve.model import RefusedRequest


def oracle(text: str) -> object:
    def integer(digits: str) -> int | float:
        return int(digits) if -(2**63) <= int(digits) < 2**64 else float(digits)  # as the model would read it

    return json.loads(text, parse_int=integer)


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=3), v, max_size=4), max_leaves=12
)


@settings(max_examples=200, deadline=None)
@given(VALUES, st.booleans())
def test_what_json_writes_is_read(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return
    np.testing.assert_equal(parse(body), oracle(text))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:0123456789eE+-.\\untrfalsNI', max_size=40).map(str.encode))
def test_any_bytes_are_a_value_or_an_error(body):
    try:
        value = parse(body)
    except RefusedRequest:
        return
    np.testing.assert_equal(value, oracle(body.decode()))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b'{"instances": ["\xed\xa0\x80"]}', b"[" * 100_000, b"[" * 100_000 + b"NaN", b"NaN" + b"1" * 5000],
)
def test_what_is_no_json(body):
    with pytest.raises(RefusedRequest, match="the body is not JSON"):
        parse(body)


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b"\x89PNG\r\n\x1a\nNaN", '; send JSON in UTF-8, and in it an image, or other bytes, as {"b64": "<base64>"}'),
        (b'--5f\r\nContent-Disposition: form-data; name="image"\r\n\r\n', "; send JSON in UTF-8, and in it an image"),
        (
            b'[{"image": {"b64": "a\naaa="}}]',
            r"; write a line break in a string as \n (base64 has none here: `base64 -w0`)",
        ),
        (b'[{"age": nan}]', "; write a missing value as null"),
    ],
)
def test_what_programs_send_for_json(body, hint):
    with pytest.raises(RefusedRequest, match=f"^the body is not JSON: .*{re.escape(hint)}"):
        parse(body)


@pytest.mark.parametrize("depth", [300, 99_999])
@pytest.mark.parametrize("body", ['{"instances": [{"x": %s}]}', '[{"x": %s}]', '{"x": NaN, "y": %s}'])
def test_no_depth_of_a_body_is_a_fault_of_the_server(client, body, depth):
    for nested in ("[" * depth, "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        for path in ("/predict", f"{client.model}:predict"):
            status, answer = client.post(path, (body % nested).encode())
            refused = status == 400 and "error" in answer
            assert refused or all("error" in row for row in answer["predictions"]), (status, answer)


JUNK = st.booleans() | st.text("x\ud800", min_size=1, max_size=3) | st.just(10**400) | st.lists(st.integers(0, 3))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(width=32) | st.integers(-(2**60), 2**60), min_size=1, max_size=5), st.none() | JUNK)
def test_requests_against_the_model_by_hand(client, numbers, junk):
    """The model adds 1; what is not finite gets an error, and a value that is no number fails its row, or request."""
    rows = [{"x": x} for x in numbers]
    if junk is not None:
        assert client.predict({"instances": [*rows, {"x": junk}]})[0] == 400
        status, answer = client.post("/predict", [*rows, {"x": junk}])
        assert status == 400 or "error" in answer["predictions"][-1]
    status, answer = client.predict({"instances": rows})
    assert status == 200
    for x, row in zip(numbers, answer["predictions"], strict=True):
        if math.isnan(x):
            assert row["error"] == "x: missing_value"
        elif math.isinf(x):
            assert row["error"] == "x: out_of_range"
        else:
            assert np.float32(row["value"]) == np.float32(x) + np.float32(1)
