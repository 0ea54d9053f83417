"""Mistakes in a schema file: each is reported with its line, its key, what was found and what is allowed."""

from __future__ import annotations

import pytest

from schemas.errors import UsageError
from schemas.spec.loader import MAX_BYTES, parse_schema
from tests.support.csv_reading import text

TRANSFORMS = "allowed: z_score, min_max, log, none, {scale: [low, high]} with low < high, {bucketize: n}"
KINDS = "allowed: numeric, category, one_hot, bool, cross, text, ignore, weight, key"
RANGE = "allowed: [first, last]: two positions counted from 0, or two numbered names such as [pixel0, pixel783]"


def mistakes(content: str | bytes) -> list[str]:
    with pytest.raises(UsageError) as caught:
        parse_schema(content if isinstance(content, bytes) else content.encode(), "d.yaml")
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("feature", "line"),
    [
        # what a feature is
        ("- {name: a}", f"d.yaml:4: features[0]: the key 'kind' is missing; {KINDS}"),
        ("- {name: a, kind: nummeric}", f"features[0].kind: found 'nummeric', did you mean 'numeric'?; {KINDS}"),
        ("- {kind: numeric}", "features[0]: the key 'name' is missing"),
        ("- numeric", "features[0]: found 'numeric'; allowed: a mapping, such as {name: age, kind: numeric}"),
        ("- {name: 3a, kind: numeric}", "features[0].name: a feature's name is a letter, then letters, digits"),
        (
            "- {name: a, kind: numeric, tranform: log}",
            "features[0].tranform: unknown key, did you mean 'transform'?; "
            "allowed: name, column, missing_tokens, columns, kind, transform, clip, missing, indicator",
        ),
        # numeric
        (
            "- {name: a, kind: numeric, transform: zscore}",
            f"features[0].transform: found 'zscore', did you mean 'z_score'?; {TRANSFORMS}",
        ),
        ("- {name: a, kind: numeric, transform: {bucketise: 3}}", f"found {{bucketise: 3}}; {TRANSFORMS}"),
        (
            "- {name: a, kind: numeric, transform: {bucketize: [2, 1]}}",
            "bucketize: boundaries must be strictly increasing",
        ),
        ("- {name: a, kind: numeric, transform: {bucketize: []}}", "there must be at least one"),
        ("- {name: a, kind: numeric, transform: {scale: [1, 1]}}", "scale: [low, high] needs low < high"),
        (
            "- {name: a, kind: numeric, transform: log, missing: zero}",
            "features[0].missing: found 'zero'; allowed: mean, ",
        ),
        ("- {name: a, kind: numeric, missing: 1e400}", "features[0].missing: found 1e400; a number must fit"),
        ("- {name: a, kind: numeric, indicator: true}", "features[0]: indicator: true needs `missing:`"),
        # which columns
        (
            "- {name: a, kind: numeric, column: [1]}",
            "found [1]; allowed: a position counted from 0, or a column's name",
        ),
        ("- {name: a, kind: numeric, columns: 3}", f"features[0].columns: found 3; {RANGE}"),
        ("- {name: a, kind: numeric, columns: [3, 1]}", "columns [3, 1]: give the first position and the last"),
        (
            "- {name: a, kind: numeric, columns: [p1, q2]}",
            "columns [p1, q2]: a range of names is one prefix and two num",
        ),
        ("- {name: a, kind: numeric, column: 1, columns: [1, 2]}", "give either `column` or `columns`, not both"),
        ("- {name: a, kind: one_hot, columns: [2, 2]}", "a one_hot group needs two or more columns"),
        # category and text
        ("- {name: a, kind: category, values: [a], hash_buckets: 3}", "give `values` or `hash_buckets`, not both"),
        ("- {name: a, kind: category, values: [a], top_k: 3}", "`top_k` and `frequency_threshold` belong to a vocab"),
        (
            "- {name: a, kind: category, values: [a, a]}",
            "`values` must contain at least one value, and each value only once",
        ),
        ("- {name: a, kind: category, values: a}", "features[0].values: found 'a'; allowed: a list, such as [a, b]"),
        ("- {name: a, kind: category, hash_buckets: 0}", "features[0].hash_buckets: found 0; allowed: more than 0"),
        ("- {name: a, kind: category, hash_buckets: 1.5}", "hash_buckets: found 1.5; allowed: a whole number"),
        ("- {name: a, kind: category, missing: }", 'missing: has no value; leave the key out, or write ""'),
        ("- {name: a, kind: text, ngrams: 2}", "features[0].ngrams: found 2; allowed: [shortest, longest]: "),
        (
            "- {name: a, kind: text, characters: [3, 11]}",
            "characters: found [3, 11]; allowed: [shortest, longest]: the ",
        ),
        (
            "- {name: a, kind: text, ngrams: [2, 1]}",
            "[2, 1]: give the shortest n-gram's length first, then the longest's",
        ),
        (
            "- {name: a, kind: text, ngrams: [1, 1], length: 9}",
            "`length` does not go with `ngrams` or `characters`: n-gr",
        ),
        ("- {name: a, kind: numeric, clip: 0.01}", "features[0].clip: found 0.01; allowed: [low, high]: two rising "),
        ("- {name: a, kind: numeric, clip: [0.9, 0.1]}", "clip: [0.9, 0.1]: give the lower share first, then a high"),
        ("- {name: a, kind: numeric, clip: [0, 1]}", "clip: [0, 1]: clips nothing; leave it out"),
        ("- {name: a, kind: numeric, clip: [0.00001, 1]}", "clip: [1e-05, 1.0]: give at most four decimals"),
        # cross
        ("- {name: a, kind: cross, of: [x], buckets: 9}", "features[0].of: found ['x']; allowed: at least 2 items"),
    ],
)
def test_a_mistake_in_a_feature(feature: str, line: str) -> None:
    (message,) = mistakes(text(feature))
    assert message.startswith("d.yaml:4: features[0]")
    assert line in message


@pytest.mark.parametrize(
    ("label", "line"),
    [
        ("{name: y, kind: cat}", "label.kind: found 'cat'; allowed: category, numeric"),
        ("{name: y, kind: category, values: [a, a]}", "label: `values` must contain each value only once"),
        (
            "{name: y, kind: category, values: [ja, nein], positive: jaa}",
            "label: positive: 'jaa' is not one of `values`; did you mean ja?",
        ),
        (
            "{name: y, kind: category, values: [a, b, c], positive: a}",
            "label: `positive` is for two classes, and `values` has 3",
        ),
        (
            "{name: y, kind: category, values: [a, b], aliases: {x: c}}",
            "label: aliases map to ['c'], which `values` does",
        ),
        ("{name: y, kind: category, aliases: [a]}", "label.aliases: found ['a']; allowed: a mapping"),
        (
            "{name: y, kind: numeric, transform: zscore}",
            "label.transform: found 'zscore', did you mean 'z_score'?; allowed: z_score, log, log1p, none",
        ),
        (
            "{name: y, kind: numeric, values: [a, b]}",
            "label.values: unknown key; allowed: name, column, missing_tokens, kind",
        ),
    ],
)
def test_a_mistake_in_the_label(label: str, line: str) -> None:
    (message,) = mistakes(text(label=label))
    assert message.startswith(f"d.yaml:5: {line}")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("cvs: {}", "cvs: unknown key, did you mean 'csv'?; allowed: name, format, csv, features, label, split"),
        ("csv: {header: none}", "csv.header: header: none needs `columns` or `num_columns`"),
        ("csv: {delimeter: ;}", "csv.delimeter: unknown key, did you mean 'delimiter'?; allowed: header, columns,"),
        ("csv: {delimiter: '::'}", "csv.delimiter: found '::'; allowed: at most 1 character"),
        ("csv: {delimiter: \u00a7}", "csv: delimiter: '\u00a7' is not one ASCII character other than a line end"),
        ('csv: {quote: ","}', "csv: delimiter and quote must differ"),
        ("csv: {missing: '?'}", "csv.missing: found '?'; allowed: a list, such as [a, b]"),
        ("csv: {columns: [x, y], num_columns: 3}", "csv: `columns` names 2 columns, but num_columns is 3"),
        ("csv: {columns: [x, x]}", "csv: columns must name each column once"),
        ("split: {train: 2}", "split.train: found 2; allowed: 1 or less"),
        ("split: {train: 0.8, eval: 0.1}", None),
        ("split: {train: 0.8, eval: 0.3}", "split: train 0.8, eval 0.3 and test 0.1 sum to 1.2; the sum must be 1"),
        ("split: {train: 0, eval: 0.5, test: 0.5}", "split: train: 0 leaves no data for training"),
        ("split: {by: customer}", "split.by: found 'customer'; allowed: row, file, or a list of features"),
        ("split: {by: [customer]}", "split.by: 'customer' is not a feature that is read from a column"),
        ("split: {by: file}", "split: the key 'train' is missing"),
        ("split: {by: file, train: 0.8}", 'split.train: found 0.8; allowed: text; put it in quotes: "0.8"'),
        ("split: {by: row, validate: 0.1}", "split.validate: unknown key; allowed: by, train, eval, test"),
        ("split:", "split: has no value; leave the key out"),
    ],
)
def test_a_mistake_in_the_rest(more: str, line: str | None) -> None:
    if line is None:
        parse_schema(text(more=more).encode(), "d.yaml")
    else:
        (message,) = mistakes(text(more=more))
        assert message.startswith(f"d.yaml:6: {line}")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "d.yaml:1: the file is empty"),
        ("- a\n", "d.yaml:1: found ['a']; allowed: a mapping"),
        ("name: d\nname: e\n", "d.yaml:2: the key 'name' is given twice (first in line 1); give it once"),
        ("a: &x 1\n", "d.yaml:1: found the anchor '&x'; anchors are not allowed"),
        ("name: d\na: *x\n", "d.yaml:2: found the alias '*x'; aliases are not allowed"),
        ("a: !!python/object/apply:os.system [ls]\n", "d.yaml:1: found the tag 'tag:yaml.org,2002:python/object/apply"),
        ("a: 1\n---\nb: 2\n", "d.yaml:2: found a second document ('---'); a schema file holds one"),
        ("a: b\nc: [1, 2\n", "d.yaml:3: is not YAML: while parsing a flow sequence: expected ',' or ']'"),
        ("a:\n\tb: 1\n", "d.yaml:2: found a tab where YAML wants spaces; indent with spaces"),
        ("a: b: c\n", "d.yaml:1: is not YAML: mapping values are not allowed here"),
        ("? [a, b]\n: c\n", "d.yaml:1: a key must be text, not a list or a mapping"),
        ("a: b\nc: \x07\n", "d.yaml:2: found the character U+0007, which YAML does not allow"),
        (b"a: b\nc: \xff\n", "d.yaml:2: the file is not UTF-8 text"),
        ("a: " + "[" * 5000, "d.yaml:1: is nested more than 16 levels deep"),
        (b"#" * (MAX_BYTES + 1), "d.yaml:1: the file is larger than 256 KiB"),
    ],
)
def test_a_file_that_is_no_plain_yaml(content: str | bytes, line: str) -> None:
    (message,) = mistakes(content)
    assert message.startswith(line)


def test_all_mistakes_are_reported_in_the_files_order() -> None:
    content = text(
        "- {name: a, kind: numeric, transform: zscore, missing: none}",
        "- {name: b, kind: categry}",
        "- name: c",
        "  kind: category",
        "  hash_buckets: 0",
        "  oov_bucket: 1",
        label="{kind: category}",
        more="split: {train: 3}",
    )
    assert [message.split(": ")[:2] for message in mistakes(content)] == [
        ["d.yaml:4", "features[0].transform"],
        ["d.yaml:4", "features[0].missing"],
        ["d.yaml:5", "features[1].kind"],
        ["d.yaml:8", "features[2].hash_buckets"],
        ["d.yaml:9", "features[2].oov_bucket"],
        ["d.yaml:10", "label"],
        ["d.yaml:11", "split.train"],
    ]


def test_all_conflicts_between_features_are_reported() -> None:
    content = text(
        "- {name: a, kind: numeric, column: 0, missing: 0, indicator: true}",
        "- {name: a_missing, kind: category, column: 0}",
        "- {name: k, kind: key, column: 1}",
        "- {name: j, kind: key, column: 9}",
        "- {name: c, kind: cross, of: [a, nowhere], buckets: 9}",
        label="{name: a, kind: category, column: 2}",
        more="csv: {header: none, num_columns: 5}\nsplit: {by: [c]}",
    )
    assert mistakes(content) == [
        "d.yaml:5: features[1].name: the name 'a_missing' is used twice",
        "d.yaml:5: features[1]: 'a_missing' and 'a' both read column 0",
        "d.yaml:7: features[3]: a dataset has one key at most",
        "d.yaml:7: features[3]: 'j' reads column 9, but a row has columns 0 to 4",
        "d.yaml:8: features[4].of: 'a' is not a category, one_hot or bucketized feature of one column",
        "d.yaml:8: features[4].of: 'nowhere' is not a category, one_hot or bucketized feature of one column",
        "d.yaml:9: label.name: the name 'a' is used twice",
        "d.yaml:11: split.by: 'c' is not a feature that is read from a column",
    ]


def test_what_is_surely_not_meant_is_a_mistake() -> None:
    content = text(
        "- {name: a, kind: category, values: [x, z]}",
        "- {name: b, kind: category, missing: gone}",
        "- {name: c, kind: cross, of: [b, a, b, b], buckets: 9}",
        '- {name: e, kind: category, missing: ""}',
        '- {name: f, kind: category, missing: "two\\nlines"}',
        '- {name: g, kind: category, values: ["", z], missing: ""}',
        '- {name: h, kind: category, hash_buckets: 5, missing: "two\\nlines"}',
        more="split: {by: [a, y]}",
    )
    holds = "a vocabulary holds neither an empty value nor one with a line end; give another, such as '<unknown>'"
    assert mistakes(content) == [
        "d.yaml:6: features[2].of: 'b' is crossed with itself; name each feature only once",
        f"d.yaml:7: features[3].missing: found ''; {holds}",
        f"d.yaml:8: features[4].missing: found 'two\\nlines'; {holds}",
        "d.yaml:12: split.by: 'y' is the label, whose classes would not be spread over the splits; "
        "allowed: row, file, or features",
    ]


_STORED = "a number is stored as a float32, which ends at 3.4e38"
_BOUNDS = "scale: [low, high] needs low < high, and a difference that is a float32"


@pytest.mark.parametrize(
    ("feature", "mistake"),
    [
        ("kind: numeric, missing: 1e39", f"missing: found 1e+39; {_STORED}"),
        (
            "kind: numeric, missing: -1.0, transform: log",
            "missing: found -1; its logarithm is not finite, which rejects",
        ),
        ("kind: numeric, transform: {scale: [-3e38, 3e38]}", f"transform: {_BOUNDS}"),
        ("kind: numeric, transform: {scale: [0, 1e-40]}", f"transform: {_BOUNDS}"),
        ("kind: numeric, transform: {bucketize: [1, 1e39]}", "transform: bucketize: boundaries must be strictly incr"),
        ("kind: numeric, transform: {bucketize: [0, 1, 1.00000001]}", "transform: bucketize: boundaries must be stri"),
    ],
)
def test_numbers_and_texts_that_data_cannot_hold(feature: str, mistake: str) -> None:
    content = text(f"- {{name: a, {feature}}}")
    (message,) = mistakes(content)
    assert message.startswith(f"d.yaml:4: features[0].{mistake}")


@pytest.mark.parametrize(
    ("feature", "key"),
    [
        (r'kind: category, values: [x, "a\ud800"]', "values[1]"),
        (r'kind: category, missing: "a\ud800"', "missing"),
        (r'kind: numeric, column: "a\ud800"', "column"),
    ],
)
def test_half_of_a_surrogate_pair_is_no_character(feature: str, key: str) -> None:
    half = r"found 'a\ud800', which holds half of a surrogate pair: no character, and never in UTF-8 data"
    assert mistakes(text(f"- {{name: a, {feature}}}")) == [f"d.yaml:4: features[0].{key}: {half}"]
    aliases = text("- {name: a, kind: numeric}", label=r'{name: y, kind: category, aliases: {"a\ud800": x}}')
    assert [line.partition(": ")[2] for line in mistakes(aliases)] == [f"label.aliases: {half}"]
