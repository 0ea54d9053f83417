"""A schema file of someone who means harm: short to write, and answered at once with what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import UsageError
from schemas.spec.loader import parse_schema
from tests.support.schema_texts import text

pytestmark = pytest.mark.slow

ONES = "1" * 100_000
LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"
SECONDS, MEGABYTES = 10, 300

MANY = [f"- {{name: f{i}, kind: numeric, columns: [p0, p99999]}}" for i in range(2000)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (LAUGHS, "d.yaml:1: found the anchor '&a'; anchors are not allowed"),
        ("a: !!python/object/new:os.system [touch pwned]\n", "d.yaml:1: found the tag"),
        ("a: !!python/name:os.system\n", "d.yaml:1: found the tag"),
        ("a: !!binary aGVsbG8=\n", "d.yaml:1: found the tag"),
        ("a: " + "{a: " * 5000, "d.yaml:1: is nested more than 16 levels deep"),
        (
            text("- {name: a, kind: numeric, columns: [0, 999999999]}"),
            "d.yaml:4: features[0]: `columns` spans 1,000,000,000 columns; a row has 100,000 at most",
        ),
        (
            text("- {name: a, kind: one_hot, columns: [p0, p99999999]}"),
            "d.yaml:4: features[0]: `columns` spans 100,000,000 columns",
        ),
        (text(*MANY), "d.yaml:3: features: read 200,000,000 columns together; a row has 100,000 at most"),
        (
            text(f"- {{name: a, kind: numeric, columns: ['{ONES}x', '{ONES}y']}}"),
            "d.yaml:4: features[0]: columns [1111111111111111111111111111111111111111, 1",
        ),
        (
            text(f"- {{name: a, kind: numeric, columns: ['p{ONES}', 'p{ONES}']}}"),
            "d.yaml:4: features[0]: columns [p111111111111111111111111111111111111111, p",
        ),
        (
            text(more="csv: {header: none, num_columns: 999999999}"),
            "d.yaml:6: csv.num_columns: found 999999999; allowed: 100000 or less",
        ),
        (
            text("- {name: a, kind: numeric, transform: {bucketize: 999999999}}"),
            "d.yaml:4: features[0].transform: found {bucketize: 999999999}; allowed:",
        ),
        (
            text("- {name: a, kind: text, length: 999999999}"),
            "d.yaml:4: features[0].length: found 999999999; allowed: 100000 or less",
        ),
    ],
)
def test_what_would_explode_or_run_is_refused_at_once(content: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(content)
    code = (
        "import pathlib, re, resource\n"
        f"resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))\n"
        "from schemas.errors import UsageError\n"
        "from schemas.spec.loader import load_schema\n"
        "try:\n"
        "    load_schema('d.yaml')\n"
        "except UsageError as error:\n"
        "    print(str(error)[:200])\n"
        # Not getrusage's ru_maxrss, which a new process inherits from the one that started it.
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, env=_own_path()
    )
    *told, megabytes = done.stdout.splitlines()
    assert told[0].startswith(line)
    assert int(megabytes) < MEGABYTES
    assert [p.name for p in tmp_path.iterdir()] == ["d.yaml"]


def _own_path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}


def test_of_many_mistakes_the_first_are_reported() -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema(("name: d\nformat: csv\n" + "".join(f"feat{i}: 1\n" for i in range(9000))).encode(), "d.yaml")
    told = str(caught.value).splitlines()
    assert len(told) == 201
    assert told[-1] == "d.yaml:9002: and 8,802 more mistakes"


def mistakes(content: bytes) -> str:
    """What is wrong with a file; '' if it declares a schema. Any error but the one for a user is raised."""
    try:
        parse_schema(content, "d.yaml")
    except UsageError as error:
        return str(error)
    return ""


WORDS = ["name", "format", "csv", "features", "label", "kind", "numeric", "category", "columns", "split", "by", "file"]
SIGNS = [
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "\n",
    "\n  ",
    "\t",
    "#",
    "&a ",
    "*a ",
    "!!x ",
    "'",
    '"',
    "|\n",
    "? ",
    "\x00",
]
PIECES = st.sampled_from([*WORDS, *SIGNS, "0", "-1", "1e400", "true", "~", "é", "\u2028", "\ufeff", "<<", "%YAML 9\n"])


@pytest.mark.parametrize("form", ["{a: 1}", "[{a: 1}]", "7", "true"])
def test_a_format_that_is_not_a_string_is_reported(form):
    with pytest.raises(UsageError, match=r"d\.yaml:2: format: found .*; allowed: csv, image_folder, image_pairs"):
        parse_schema(f"name: d\nformat: {form}\n".encode(), "d.yaml")


@settings(max_examples=300, derandomize=True)
@given(start=st.sampled_from(["", text() + "\n", "name: d\nformat: csv\n"]), pieces=st.lists(PIECES, max_size=25))
def test_any_text_is_a_schema_or_a_list_of_mistakes(start: str, pieces: list[str]) -> None:
    told = mistakes((start + "".join(pieces)).encode())
    assert not told or told.startswith("d.yaml:")


@settings(max_examples=200, derandomize=True)
@given(data=st.binary(max_size=80), cut=st.integers(0, 100))
def test_any_bytes_are_a_schema_or_a_list_of_mistakes(data: bytes, cut: int) -> None:
    whole = text().encode()
    told = mistakes(whole[:cut] + data + whole[cut:])
    assert not told or told.startswith("d.yaml:")
