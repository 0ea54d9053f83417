"""`millrace dataset head`: stored records with what their ids mean, and images as a contact sheet."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from millrace.cli import main
from schemas.dataset.head import contact_sheet
from schemas.dataset.records import Image as StoredImage
from schemas.dataset.records import Records


def opened(path: Path) -> Image.Image:
    return Image.open(io.BytesIO(path.read_bytes()))


def test_records_with_what_their_ids_mean(people, capsys):
    assert main(["dataset", "head", people.path, "--split", "eval", "-n", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["split"], told["rows"], told["contact_sheet"]) == ("eval", people.splits["eval"].rows, None)
    stored = people.head(3, split="eval")
    work = Path(people.path, people.opened.manifest.run, "transform_fn/assets/work").read_text().splitlines()
    for record, row in zip(told["records"], stored, strict=True):
        assert record["age"] == pytest.approx(row["age"])
        assert record["income means"] == ("<=50K", ">50K")[row["income"]]
        assert record["city means"] == (("Oslo", "Rome")[row["city"]] if row["city"] < 2 else "<other>")
        assert record["work means"] == (work[row["work"]] if row["work"] < len(work) else "<other>")
        assert record["pet means"] == f"pet{row['pet']}"
        assert len(record["title means"]) == 3
        assert "work_x_city means" not in record


def test_a_table_with_a_line_for_each_feature(people, capsys):
    assert main(["dataset", "head", people.path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"train: the first 5 of {people.splits['train'].rows:,} records of people"
    assert max(map(len, lines)) <= 140
    (income,) = {line.split()[0]: line for line in lines if line.startswith("income ")}.values()
    assert "50K (" in income


def test_images_become_a_contact_sheet_that_replaces_nothing(shapes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("shapes-train.png", "shapes-train-2.png"):
        assert main(["dataset", "head", shapes.path]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"contact sheet: {name}"
        sheet = opened(tmp_path / name)
        assert sheet.format == "PNG"
        count = min(24, shapes.splits["train"].rows)
        assert sheet.width >= 5 * 72
        assert sheet.height * sheet.width > count * 72 * 72
        assert len(sheet.convert("L").getcolors() or [0] * 300) > 20  # images, and not a blank page
    taken = ["dataset", "head", shapes.path, "--output", "shapes-train.png"]
    assert main(taken) == 2
    assert "already exists" in capsys.readouterr().err
    assert main([*taken, "--overwrite", "-n", "1"]) == 0
    assert opened(tmp_path / "shapes-train.png").height < 120


def test_raw_pixels_keep_their_colours(shapes):
    red = StoredImage(bytes([250, 10, 10]) * 64, "RAW", 8, 8)
    sheet = Image.open(io.BytesIO(contact_sheet(Records(({"image": red, "image/class/text": "x"},)), shapes.opened)))
    assert (250, 10, 10) in {colour for _, colour in sheet.convert("RGB").getcolors(1 << 20) or ()}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--split", "other"], "has no such split; it has train, eval"),
        (["-n", "0"], "-n 0: must be from 1"),
        (["--output", "x.png"], "is for the contact sheet of images"),
    ],
)
def test_usage_errors(people, argv, message, capsys):
    assert main(["dataset", "head", people.path, *argv]) == 2
    assert message in capsys.readouterr().err


def test_what_is_no_dataset(tmp_path, capsys):
    assert main(["dataset", "head", str(tmp_path)]) != 0
    assert "Traceback" not in capsys.readouterr().err
