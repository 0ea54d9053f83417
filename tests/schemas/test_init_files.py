"""Files of others: how tables are written, tables declared as a person would, folders of images."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from schemas.errors import MillraceError, UsageError
from schemas.init.form import detect
from schemas.init.images import are_images, infer_images
from schemas.init.survey import survey
from schemas.init.tables import infer_table
from schemas.spec.features import Numeric, OneHot, Scale
from schemas.spec.images import Exact, ImageSchema, Shorter
from schemas.spec.kinds.base import Item
from schemas.spec.loader import parse_schema
from schemas.spec.table import Schema
from tests.support.csv_reading import table_schema
from tests.support.declared_by_hand import FIXTURES, SPECTRUM, TABLES, ByHand, Column
from tests.support.image_files import png

ROWS = [f"{i},{i / 7:.3f},{'xyz'[i % 3]},Ann Other" for i in range(60)]


def put(folder: Path, data: str | bytes, name: str = "t.csv") -> str:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


@pytest.mark.parametrize("delimiter", [",", "\t", "|"])
@pytest.mark.parametrize("header", [True, False])
def test_delimiters_with_and_without_a_header(tmp_path, delimiter, header):
    lines = (["id,share,grade,name"] if header else []) + ROWS
    form = detect(put(tmp_path, "\n".join(lines).replace(",", delimiter) + "\n"))
    assert form.options.delimiter == delimiter
    assert form.width == 4
    assert form.names == (("id", "share", "grade", "name") if header else None)
    assert form.options.header == ("present" if header else "none")


def test_numbers_in_their_order_are_a_header(tmp_path):
    assert detect(put(tmp_path, "0,1,2\n" + "5,6,7\n" * 30)).names == ("0", "1", "2")
    assert detect(put(tmp_path, "1,1,2\n" + "5,6,7\n" * 30)).names is None


def test_quotes_that_hold_line_ends_and_delimiters(tmp_path):
    form = detect(put(tmp_path, "id,text\n" + '1,"two\nlines, and ""more"""\n' * 30))
    assert (form.options.quoted_newlines, form.width) == (True, 2)
    assert not detect(put(tmp_path, "id,text\n" + '1,"one line, only"\n' * 30)).options.quoted_newlines
    assert detect(put(tmp_path, "id,text\n" + "1,'one line, only'\n" * 30)).options.quote == "'"


@pytest.mark.parametrize("strays", [[1100, 1800], [2999]])
def test_a_quote_that_is_never_closed_does_not_take_the_rest_of_a_file_for_one_record(tmp_path, strays):
    quotes = ['"' if i in strays else "" for i in range(3000)]
    rows = [f"{i},{quote}Oslo,{i / 7:.2f},{i % 2}\n" for i, quote in enumerate(quotes)]
    path = put(tmp_path, "id,city,amount,y\n" + "".join(rows))
    assert not detect(path).options.quoted_newlines
    result = survey([path], sample=False)
    assert not result.form.options.quoted_newlines
    assert (result.rows, sum(result.bad.values())) == (3000 - len(strays), len(strays))


def test_long_text_between_quotes_spans_lines_though_its_lines_would_be_records(tmp_path):
    text = "\n".join(["one, two, three"] * 20)
    assert detect(put(tmp_path, "id,text,y\n" + f'1,"a\n{text}\nb",0\n' * 30)).options.quoted_newlines


@pytest.mark.parametrize("cell", ["http://" + "a." * 50_000, "1" * 200_000 + "x"])
def test_a_long_cell_is_no_work_of_hours(tmp_path, cell):
    rows = "".join(f"{i},{cell if i == 1 else 'short'},{'xy'[i % 2]}\n" for i in range(40))
    form = detect(put(tmp_path, f"id,text,y\n{rows}"))
    assert (form.names, form.options.delimiter) == (("id", "text", "y"), ",")


@pytest.mark.parametrize(
    ("codec", "encoding"), [("utf-8", "utf-8"), ("utf-8-sig", "utf-8"), ("latin-1", "latin-1"), ("utf-16", "utf-16")]
)
def test_encodings(tmp_path, codec, encoding):
    text = "name,share\n" + "".join(f"Zoë,{i}.5\n" for i in range(50))
    form = detect(put(tmp_path, gzip.compress(text.encode(codec)), "t.csv.gz"))
    assert (form.options.encoding, form.names) == (encoding, ("name", "share"))
    assert bool(form.notes) == (encoding == "latin-1")


def zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("t.csv", "a,b\n1,2\n")
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\n \r\n\n", "the file is empty"),
        (zipped(), "zip archive"),
        (b"PAR1" + bytes(100), "Parquet"),
        (bytes(range(256)) * 100, "which is no text"),
        (b"a,b\n" + bytes(1000), "is filled up with NUL bytes from byte 4 on; expected a CSV file, or images"),
        (b"a\n1\n2\n3\n", "found one column ('a' is its first line)"),
        (b"a,b,c\n", "found a header and no records"),
        (b"a,b,a\n" + b"1,2,3\n" * 30, "the header names 'a' more than once"),
        (b"a,b\n" + b"1,2,3\n" * 30, "the header has 2 names, but most records have 3 fields"),
    ],
)
def test_what_is_no_table_is_said_in_one_line(tmp_path, data, message):
    with pytest.raises(UsageError) as error:
        detect(put(tmp_path, data))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("above", "message"),
    [
        ("sep=;\n", "below 'sep=;'; expected it in the first line. Remove the lines above it: tail -n +2 "),
        ("# from x, 2024\n# more\n", "stands in line 3, below '# from x, 2024'"),
        ("Report\n\n", "stands in line 3, below 'Report'"),
        ("Report;;;\n", "stands in line 2, below 'Report;;;'"),
    ],
)
def test_lines_above_the_header_are_named(tmp_path, above, message):
    body = "\n".join(["id,share,grade,name", *ROWS]).replace(",", ";") + "\n"
    with pytest.raises(UsageError) as error:
        detect(put(tmp_path, above + body))
    assert message in str(error.value)


def test_quotes_that_a_backslash_escapes_are_named(tmp_path, capsys):
    rows = [r'"the \"old\" mill",' if i % 2 else r'"says \"no\", often",' for i in range(60)]
    path = put(tmp_path, "title,x\n" + "".join(f"{row}{i}\n" for i, row in enumerate(rows)))
    with pytest.raises(UsageError, match="found quotes escaped by a backslash; expected them doubled"):
        detect(path)
    path = put(
        tmp_path,
        "title,n,x\n"
        + "".join(f"{row if i % 9 == 0 else f'plain {i},'}{i % 7},{i % 2}\n" for i, row in enumerate(rows)),
    )
    inferred = infer_table([path])
    assert "found quotes escaped by a backslash" in inferred.notes[-1]
    assert "7 of 60 records (12 %)" in inferred.notes[-1]


def test_quotes_in_a_table_without_quoted_cells_are_letters(tmp_path):
    rows = [f'"Foo {i}" the {i % 7}' if i % 4 == 0 else f'{i}" pipe' for i in range(60)]
    path = put(tmp_path, "title\tx\ty\n" + "".join(f"{row}\t{i % 9}.5\t{i % 2}\n" for i, row in enumerate(rows)))
    inferred = infer_table([path])
    assert table_schema(inferred.text).csv.quote == "\x01"
    assert inferred.notes == ('quotes stand inside cells and are read like letters: csv: {quote: "\\u0001"}',)
    quoted = [f'"a ""{i}"""' if i != 5 else '"b" b' for i in range(60)]
    assert detect(put(tmp_path, "title\tx\n" + "".join(f"{row}\t1\n" for row in quoted))).options.quote == '"'


@pytest.mark.parametrize("lead", ["", "  "])
def test_cells_that_spaces_align_are_refused(tmp_path, lead):
    rows = [f"{lead}{i % 97 / 7:8.4f}  {i * 7 % 701 / 3:7.2f}   {'pq'[i % 2]}  {i % 3}\n" for i in range(200)]
    with pytest.raises(UsageError, match="the cells are aligned by several spaces, as in"):
        detect(put(tmp_path, "".join(rows)))
    cars = [f'{i}.0   8   {i % 7}.0      130.0\t"chevrolet {"malibu" if i % 2 else "impala ss"}"\n' for i in range(90)]
    with pytest.raises(UsageError, match="aligned by several spaces"):
        detect(put(tmp_path, "".join(cars)))
    padded = "a,   b,   y\n" + "".join(f"{i},   {i % 7},   {i % 2}\n" for i in range(60))
    assert detect(put(tmp_path, padded)).options.delimiter == ","


def test_files_without_records_among_the_inputs_are_named(tmp_path):
    part = "share,y\n" + "".join(f"0.{i % 89:02d},{'yes' if i % 3 else 'no'}\n" for i in range(60))
    empty = [put(tmp_path, "", "_SUCCESS"), put(tmp_path, "share,y\n", "part-0")]
    paths = [
        *empty,
        put(tmp_path, part, "part-1"),
        put(tmp_path, "", "part-2"),
        put(tmp_path, "share,y\n.5,no\n", "p3"),
    ]
    inferred = infer_table(paths)
    assert inferred.rows == 61
    assert inferred.notes == (f"no record is in {empty[0]}, {empty[1]}, {paths[3]}",)
    with pytest.raises(UsageError, match="none of 2 files has a record"):
        infer_table(empty)


def test_nul_bytes_behind_the_records_are_named(tmp_path):
    inferred = infer_table([put(tmp_path, "share,y\n" + "0.5,yes\n0.25,no\n0.5,no\n" * 600 + "\0" * 30)])
    assert "found NUL bytes only, as where a file was allocated and not filled" in inferred.notes[0]


def test_a_damaged_gzip_file(tmp_path):
    with pytest.raises(MillraceError, match="truncated"):
        detect(put(tmp_path, gzip.compress(b"a,b\n1,2\n" * 10_000)[:40]))


ENOUGH = 0.95  # of the columns of each file


def by_column(columns: Mapping[Column, str]) -> dict[str | int, str]:
    """The person's declarations, column by column."""
    return {
        column: declared
        for several, declared in columns.items()
        for column in (several if isinstance(several, range | tuple) else (several,))
    }


def written(item: Item) -> str:
    """A declaration as the person's table has it."""
    match item:
        case Numeric(transform=Scale()):
            return "numeric scale"
        case Numeric(transform="log"):
            return "numeric log"
        case _:
            return item.kind  # type: ignore[attr-defined]


def guessed(schema: Schema, names: tuple[str, ...] | None) -> dict[str | int, str]:
    """What the schema declares, column by column, as the header calls them."""
    guesses: dict[str | int, str] = {}
    for item in schema.items:
        is_label = item is schema.label
        for ref in item.refs:
            column = names[ref] if isinstance(ref, int) and names is not None else ref
            guesses[column] = f"label {item.kind}" if is_label else written(item)
    return guesses


def schema_of(table: ByHand, folder: Path) -> tuple[Schema, tuple[str, ...] | None]:
    path = str(folder / table.file)
    inferred = infer_table([path], label=table.label)
    schema = table_schema(inferred.text)
    first = None
    if schema.csv.header == "present" and not path.endswith(".gz"):
        line = Path(path).read_bytes().splitlines()[0].decode("utf-8", "replace")
        quote, delimiter = schema.csv.quote, schema.csv.delimiter
        first = tuple(name.strip().strip(quote) for name in line.split(delimiter))
    return schema, first


def name_of(table: ByHand) -> str:
    return table.file.rpartition("/")[2]


@pytest.mark.parametrize("table", [table for table in TABLES if table.in_fixtures], ids=name_of)
def test_a_table_is_declared_as_by_hand(table):
    assert_declared_as_by_hand(table, FIXTURES)


@pytest.mark.parametrize("table", [table for table in TABLES if not table.in_fixtures], ids=name_of)
def test_a_large_table_is_declared_as_by_hand(real_data, table):
    assert_declared_as_by_hand(table, real_data)


def assert_declared_as_by_hand(table: ByHand, folder: Path) -> None:
    schema, names = schema_of(table, folder)
    guesses, expected = guessed(schema, names), by_column(table.columns)
    assert guesses.keys() == expected.keys()
    wrong = {column: (guesses[column], expected[column]) for column in expected if guesses[column] != expected[column]}
    assert len(wrong) <= (1 - ENOUGH) * len(expected), wrong
    groups = [item.refs for item in schema.items if isinstance(item, OneHot)]
    by_hand = [several for several, kind in table.columns.items() if kind == "one_hot"]
    assert groups == [tuple(several) for several in by_hand if isinstance(several, range | tuple)]


def test_the_files_of_csv_spectrum_are_declared_as_by_hand(real_data):
    right = total = 0
    for table in SPECTRUM:
        schema, names = schema_of(table, real_data)
        guesses, expected = guessed(schema, names), by_column(table.columns)
        assert guesses.keys() == expected.keys(), table.file
        total += len(expected)
        right += sum(guesses[column] == declared for column, declared in expected.items())
    assert right >= ENOUGH * total


def test_those_who_answered_several_times_stay_together():
    for table, by in (("modechoice.csv", "individual"), ("penguins-raw.csv", "individual_id")):
        schema, _ = schema_of(next(t for t in TABLES if t.file == table), FIXTURES)
        assert schema.split.model_dump()["by"] == (by,)


def draw(folder: Path, classes: dict[str, int], *, height: int = 40, width: int = 60) -> list[str]:
    rng = np.random.default_rng(1)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            shape = (height + i % 3 * (height > 32), width, 3)
            (folder / name / f"{i}.png").write_bytes(png(rng.integers(0, 256, shape, dtype=np.uint8)))
    return sorted(str(path) for path in folder.rglob("*.png"))


def image_schema(text: str) -> ImageSchema:
    schema = parse_schema(text.encode(), "written")
    assert isinstance(schema, ImageSchema)
    return schema


def test_classes_sizes_and_a_size_for_the_model(tmp_path):
    paths = draw(tmp_path / "pets", {"cat": 60, "dog": 50}, height=100, width=150)
    inferred = infer_images(paths)
    schema = image_schema(inferred.text)
    assert (schema.name, schema.label.values, inferred.rows) == ("pets", ("cat", "dog"), 110)
    assert isinstance(schema.images.resize, Shorter)
    assert (schema.images.resize.shorter, schema.images.crop) == (72, (64, 64))
    assert schema.split.splits == ("train", "eval", "test")
    assert "# Classes: cat 55 %, dog 45 %." in inferred.text
    assert "# Formats: png 100 %." in inferred.text
    assert inferred.notes == ()


def test_images_that_end_early_count_as_rejects_of_the_next_command(tmp_path):
    paths = draw(tmp_path / "pets", {"cat": 60, "dog": 50}, height=200, width=300)
    for path in paths[:20]:
        Path(path).write_bytes(Path(path).read_bytes()[:90_000])
    Path(paths[29]).write_bytes(Path(paths[29]).read_bytes() + bytes(200_000))  # as phones append a film
    inferred = infer_images(paths)
    assert inferred.flags == " --max_reject_fraction 0.2"
    (note,) = inferred.notes
    assert note.startswith("20 images of 110 will be rejected as truncated_image, such as ")


def test_folders_of_splits_that_are_mixed_are_pointed_out(tmp_path):
    paths = [path for split in ("train", "Val") for path in draw(tmp_path / split, {"ants": 30, "bees": 30})]
    note = "the folders Val, train look like splits, but their images are mixed and split anew, as the schema says."
    assert infer_images(paths).notes == (f"{note} To keep a folder apart, leave it out of the input",)
    assert infer_images(draw(tmp_path / "train", {"ants": 30, "bees": 30})).notes == ()


def test_small_images_of_one_size_are_taken_as_they_are(tmp_path):
    schema = image_schema(infer_images(draw(tmp_path, {"0": 30, "1": 30}, height=28, width=28)).text)
    assert isinstance(schema.images.resize, Exact)
    assert (schema.images.resize.exact, schema.images.store, schema.images.crop) == ((28, 28), "raw", None)
    assert schema.label.values == ("0", "1")
    assert schema.split.splits == ("train", "eval")


def test_what_will_be_rejected_is_said(tmp_path):
    draw(tmp_path, {"a": 12, "b": 12})
    (tmp_path / "a" / "note.png").write_bytes(b"hello")
    (tmp_path / "b" / "empty.png").write_bytes(b"")
    inferred = infer_images(sorted(map(str, tmp_path.rglob("*.png"))))
    assert [note.split(",")[0] for note in inferred.notes] == [
        "1 image of 26 will be rejected as not_an_image",
        "1 image of 26 will be rejected as empty_file",
    ]
    assert inferred.flags == ""  # ten are allowed
    for i in range(12):
        (tmp_path / "a" / f"empty{i}.png").write_bytes(b"")
    assert infer_images(sorted(map(str, tmp_path.rglob("*.png")))).flags == " --max_reject_fraction 0.39"
    image_schema(inferred.text)


def test_many_small_folders_may_be_identities(tmp_path):
    text = infer_images(draw(tmp_path, {f"p{i:02d}": 2 for i in range(20)})).text
    assert "split: {by: folder" in text
    assert image_schema(text).split.splits == ("train", "eval")


def test_a_single_class_and_unreadable_images(tmp_path):
    with pytest.raises(UsageError, match="one class; expected a folder for each class"):
        infer_images(draw(tmp_path / "one", {"a": 3}))
    for name in ("x", "y"):
        (tmp_path / "bad" / name).mkdir(parents=True)
        (tmp_path / "bad" / name / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(UsageError, match="none of 2 images can be read"):
        infer_images(sorted(map(str, (tmp_path / "bad").rglob("*.png"))))


def test_images_are_told_from_tables(tmp_path):
    (tmp_path / "t.png").write_text("a,b\n1,2\n")
    (tmp_path / "empty.png").write_bytes(b"")
    table, empty = str(tmp_path / "t.png"), str(tmp_path / "empty.png")
    with pytest.raises(UsageError, match=r"t\.png: not an image: its first bytes are b'a,b"):
        are_images([table])
    assert are_images([empty, *draw(tmp_path / "i", {"a": 3})])
