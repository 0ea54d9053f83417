"""Image files in, the most probable classes out: as JSON lines, and printed; rejects in the words of the job."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from beam_jobs.images.reader import ImageReader
from schemas.images.listing import ImageItem, bundles, list_folders
from schemas.rejects import Reject
from schemas.spec.images import ImageOptions, ImageSplit
from tests.support.drawn_datasets import striped
from tests.support.image_files import BMP, GIF, png
from tests.support.predicted import predicting, read_lines, read_rejects
from trainer import predict
from trainer.predicting.inputs import json_entries

CUT = png(striped("lying", 1))[:400]  # its header is whole


@pytest.fixture
def photos(tmp_path) -> Path:
    """Twelve images of three classes."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(12):
        kind = ("checkered", "lying", "standing")[i % 3]
        (folder / f"{i:02d}-{kind}.png").write_bytes(png(striped(kind, 5000 + i)))
    return folder


@pytest.fixture
def run(stripes_model, tmp_path):
    return predicting(stripes_model.export, tmp_path)


@pytest.mark.slow
class TestImages:
    def test_a_line_for_each_in_order_with_the_classes_in_order_and_the_same_is_printed(
        self, run, photos, tmp_path, capsys
    ):
        assert run(photos / "*.png") == 0
        lines, printed = read_lines(tmp_path / "p.jsonl"), capsys.readouterr().out.splitlines()
        assert [line["source"] for line in lines] == sorted(map(str, photos.iterdir()))
        for line, text in zip(lines[:10], printed, strict=False):
            top = line["top_5"]
            assert set(top) == {"checkered", "lying", "standing"}
            assert list(top.values()) == sorted(top.values(), reverse=True)
            assert sum(top.values()) == pytest.approx(1, abs=1e-5)
            assert line["class"] == next(iter(top))
            assert text == f"{line['source']}: " + ", ".join(f"{name} {value:.4f}" for name, value in top.items())
        assert printed[10] == f"and 2 more in {tmp_path / 'p.jsonl'}"
        assert printed[11] == "read       12 images"
        assert printed[12] == f"predicted  12: {tmp_path / 'p.jsonl'}"

    def test_csv_with_the_probabilities_of_all_classes(self, run, photos, tmp_path):
        assert run(photos / "*.png") == run(photos / "*.png", output="a.csv", more=("--batch_size", "5")) == 0
        frame = pd.read_csv(tmp_path / "a.csv")
        names = ["checkered", "lying", "standing"]
        assert list(frame) == ["source", "class", *(f"probability_{name}" for name in names)]
        for line, row in zip(read_lines(tmp_path / "p.jsonl"), frame.to_dict("records"), strict=True):
            assert (row["source"], row["class"]) == (line["source"], line["class"])
            assert {n: row[f"probability_{n}"] for n in names} == pytest.approx(line["top_5"], rel=1e-4, abs=1e-6)

    def test_the_same_by_other_batches(self, run, photos, tmp_path, capsys):
        run(photos / "*", output="a.jsonl")
        capsys.readouterr()
        run(photos / "*", output="b.jsonl", more=("--batch_size", "5", "--quiet"))
        assert capsys.readouterr().out.startswith("read       12 images")  # no line for each
        for a, b in zip(read_lines(tmp_path / "a.jsonl"), read_lines(tmp_path / "b.jsonl"), strict=True):
            assert (a["source"], a["class"]) == (b["source"], b["class"])
            assert a["top_5"] == pytest.approx(b["top_5"], rel=1e-4, abs=1e-6)

    def test_without_output_it_lies_in_the_current_folder_and_all_are_printed(
        self, stripes_model, photos, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.chdir(tmp_path)
        assert predict.main(["--saved_model", str(stripes_model.export), "--input", "photos/*.png"]) == 0
        assert read_lines(tmp_path / "predictions.jsonl")[0]["source"] == "photos/00-checkered.png"
        assert capsys.readouterr().out.splitlines()[12] == "read       12 images"

    def test_a_name_that_is_not_text(self, run, photos, tmp_path, capsys):
        os.rename(os.fsencode(photos / "00-checkered.png"), os.fsencode(photos) + b"/00-\xff\n.png")
        assert run(photos / "0*") == 0
        (reject,) = read_rejects(tmp_path / "p.rejects.jsonl")
        assert (reject.source, reject.stage, reject.reason) == (f"{photos}/00-\\xff\\n.png", "list", "bad_name")
        assert reject.raw == os.fsencode(photos) + b"/00-\xff\n.png"
        assert capsys.readouterr().out.startswith(f"{photos}/00-\\xff\\n.png: rejected, bad_name (")


@pytest.mark.slow
class TestRejects:
    def test_a_broken_image_is_a_line_and_its_neighbours_are_predicted(self, run, photos, tmp_path, capfd):
        broken = [(b"", "empty_file", "0 bytes"), (CUT, "truncated_image", "PNG")]
        for i, (data, _, _) in enumerate(broken):
            (photos / f"{2 * i:02d}-x.jpg").write_bytes(data)
        assert run(photos / "*", more=("--batch_size", "3")) == 0
        rejects = read_rejects(tmp_path / "p.rejects.jsonl")
        shown = capfd.readouterr()
        for i, (reject, (_, reason, detail)) in enumerate(zip(rejects, broken, strict=True)):
            assert (reject.source, reject.reason) == (str(photos / f"{2 * i:02d}-x.jpg"), reason)
            assert reject.stage == "ingest"
            assert detail in reject.detail
            assert f"{2 * i:02d}-x.jpg: rejected, {reason} (" in shown.out
            assert f"1 {reason}" in shown.out
        predicted = [line["source"] for line in read_lines(tmp_path / "p.jsonl")]
        assert predicted == sorted(str(path) for path in photos.glob("*.png"))
        assert "png" not in shown.err.lower()  # what the decoder says of it

    def test_too_many_leave_no_predictions(self, run, photos, tmp_path, capsys):
        (photos / "a.jpg").write_bytes(CUT)
        assert run(photos / "*", more=("--max_rejects", "0")) == 1
        assert "rejected 1 of 13 images (1 truncated_image)" in capsys.readouterr().err
        assert not (tmp_path / "p.jsonl").exists()
        assert len(read_rejects(tmp_path / "p.rejects.jsonl")) == 1


@pytest.mark.slow
class TestPairs:
    @pytest.fixture
    def run_pairs(self, patterns_model, tmp_path):
        def run_it(text: str, *more: str) -> int:
            (tmp_path / "pairs.csv").write_text(text)
            argv = ["--saved_model", str(patterns_model.export), "--output", str(tmp_path / "p.jsonl"), *more]
            return predict.main([*argv, "--input", str(tmp_path / "pairs.csv")])

        return run_it

    @pytest.fixture
    def faces(self, tmp_path) -> Path:
        (tmp_path / "faces").mkdir()
        for i in range(3):
            (tmp_path / "faces" / f"{i}.png").write_bytes(png(striped("lying", i)))
        return tmp_path / "faces"

    def test_two_paths_a_line_relative_to_the_file(self, run_pairs, faces, tmp_path, capsys):
        assert run_pairs("left,right\nfaces/0.png,faces/1.png\n\nfaces/2.png,faces/2.png\n") == 0
        first, second = read_lines(tmp_path / "p.jsonl")
        assert (first["source"], first["line"]) == (str(tmp_path / "pairs.csv"), 2)
        assert (first["left"], first["right"]) == ("faces/0.png", "faces/1.png")
        assert (second["line"], second["left"]) == (4, "faces/2.png")
        assert set(first["top_5"]) == {"same", "different"}
        assert first["class"] in ("same", "different")
        assert capsys.readouterr().out.startswith("faces/0.png faces/1.png: ")

    def test_relative_to_a_root(self, run_pairs, faces, tmp_path):
        assert run_pairs("0.png,1.png\n", "--root", str(faces)) == 0
        assert len(read_lines(tmp_path / "p.jsonl")) == 1

    def test_a_root_that_is_no_folder_is_refused(self, run_pairs, faces, capsys):
        assert run_pairs("0.png,1.png\n", "--root", str(faces / "0.png")) == 2
        assert "no such folder" in capsys.readouterr().err

    def test_images_are_refused_for_a_model_of_pairs(self, patterns_model, faces, tmp_path, capsys):
        argv = ["--saved_model", str(patterns_model.export), "--output", str(tmp_path / "p.jsonl")]
        assert predict.main([*argv, "--input", str(faces / "0.png")]) == 2
        assert "takes CSV files with two image paths per line" in capsys.readouterr().err

    def test_a_bad_line_is_a_reject(self, run_pairs, faces, tmp_path):
        bad = [
            ("faces/0.png", "too_few_columns", None),
            ("faces/0.png,faces/1.png,same", "too_many_columns", None),
            ("faces/\a.png,faces/1.png", "bad_name", None),
            ("/etc/hostname,faces/1.png", "path_outside_root", None),
            ("faces/0.png,../1.png", "path_outside_root", None),
            ("file:///x,faces/1.png", "path_outside_root", None),
            ("faces/0.png,faces/link.png", "path_outside_root", None),
            ('"faces/0.png,faces/1.png', "too_few_columns", None),
            ("faces/none.png,faces/1.png", "unreadable_file", "left"),
            ("faces/0.png,faces", "not_a_file", "right"),
            ("faces/cut.png,faces/1.png", "truncated_image", "left"),
            ("faces/0.png,faces/empty.png", "empty_file", "right"),
        ]
        (faces / "cut.png").write_bytes(CUT)
        (faces / "empty.png").write_bytes(b"")
        (faces / "link.png").symlink_to("/etc/hostname")
        lines = "".join(f"{line}\nfaces/0.png,faces/1.png\n" for line, _, _ in bad)
        assert run_pairs(lines, "--max_rejects", str(len(bad))) == 0
        rejects = sorted(read_rejects(tmp_path / "p.rejects.jsonl"), key=lambda reject: reject.offset)
        refused_lines = [(reject.raw.decode(), reject.reason, reject.column) for reject in rejects]
        assert refused_lines == bad
        assert [reject.offset for reject in rejects] == list(range(1, 2 * len(bad), 2))
        assert [entry["line"] for entry in read_lines(tmp_path / "p.jsonl")] == list(range(2, 2 * len(bad) + 1, 2))


@pytest.mark.parametrize(
    ("probabilities", "top"),
    [
        ((0.1, 0.05, 0.3, 0.2, 0.15, 0.12, 0.08), "cdefa"),  # five at most
        ((0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1), "bcdae"),  # equals in the order of their ids
        ((float("nan"),) * 7, "abcde"),
    ],
)
def test_the_most_probable_classes(probabilities, top):
    values = np.array([probabilities], np.float32)
    outputs = {"class_id": values.argmax(1), "probabilities": values}
    (entry,) = json_entries([ImageItem("x.png", 0, {})], outputs, tuple("abcdefg"))
    top_classes = entry["top_5"]
    assert "".join(top_classes) == top
    assert np.isfinite(values).all() or set(top_classes.values()) == {None}


GOOD = png(striped("lying", 1))
LABEL = "lying"


def nasty_files(folder: Path, images: ImageOptions) -> None:
    """Good files and bad ones, in a folder whose name is their label."""
    files = {
        b"good.png": GOOD,
        b"empty.jpg": b"",
        b"text.jpg": b"this is no image",
        b"webp.png": b"RIFF\0\0\0\0WEBP",
        b"cut.png": GOOD[:400],
        b"cut header.png": GOOD[:14],
        b"moving.gif": GIF,
        b"paint.bmp": BMP,
        b"bomb.png": png(striped("lying", 1)[:1, :1], size=(60_000, 60_000)),
        b"needle.png": png(striped("lying", 1)[:1, :1], size=(1, 100_000)),
        b"flipped.png": GOOD[:300] + bytes([GOOD[300] ^ 8]) + GOOD[301:],
        b"jpeg.jpg": b"\xff\xd8\xff\xe0\0\2junk\xff\xd9",
        b"a\nname.png": GOOD,
        b"a\x7fname.png": b"",
        b"no \xff text.png": GOOD,
        "Grüße, %s.png".encode(): GOOD,
    }
    for name, data in files.items():
        (folder / os.fsdecode(name)).write_bytes(data)
    with open(folder / "large.png", "wb") as file:
        file.truncate(images.max_file_bytes + 1)
    os.mkfifo(folder / "pipe.png")
    (folder / "gone.png").symlink_to("nowhere")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "device.png").symlink_to("/dev/zero")


def by_the_job(paths: list[str], images: ImageOptions) -> tuple[int, list[Reject]]:
    listing = list_folders(paths)
    split = ImageSplit(train=1.0, eval=0.0, test=0.0)
    with ImageReader(images, classes=(LABEL, "other"), split=split) as reader:
        batches = [batch for bundle in bundles(listing) for batch in reader.read(bundle)]
    rejects = [reject for batch in batches for reject in batch.rejects]
    return sum(batch.records.num_rows for batch in batches), [*listing.rejects, *rejects]


def by_predict(paths: list[str], export: Path, out: Path) -> tuple[int, list[Reject]]:
    argv = ["--saved_model", str(export), "--output", str(out / "p.jsonl"), "--max_rejects", "1000"]
    assert predict.main([*argv, "--quiet", "--input", *paths]) == 0
    return len(read_lines(out / "p.jsonl")), read_rejects(out / "p.rejects.jsonl")


def refusals(rejects: list[Reject]) -> dict[str, tuple[str, str, str | None, str, bytes]]:
    return {r.source: (r.stage, r.reason, r.column, r.detail, r.raw) for r in rejects}


def check_both(stripes, stripes_model, folder: Path, out: Path) -> set[str]:
    """Every file is taken by the job and by predict, or refused by both in the same words. Returns the reasons."""
    paths = sorted(str(path) for path in folder.iterdir())
    stored, refused = by_the_job(paths, stripes.image_schema.images)
    predicted, refused_too = by_predict(paths, stripes_model.export, out)
    assert refusals(refused_too) == refusals(refused)
    assert predicted == stored
    assert stored + len(refused) == len(paths)
    return {reject.reason for reject in refused}


def test_nasty_files_are_refused_by_both_in_the_same_words(stripes, stripes_model, tmp_path):
    folder = tmp_path / "photos" / LABEL
    folder.mkdir(parents=True)
    nasty_files(folder, stripes.image_schema.images)
    assert check_both(stripes, stripes_model, folder, tmp_path) == {
        "empty_file",
        "not_an_image",
        "unsupported_format",
        "truncated_image",
        "too_many_pixels",
        "too_elongated",
        "undecodable_image",
        "bad_header",
        "bad_name",
        "file_too_large",
        "not_a_file",
        "unreadable_file",
    }


def test_nasty_images_of_the_real_data_are_too(stripes, stripes_model, tmp_path, real_data):
    folder = tmp_path / "photos" / LABEL
    shutil.copytree(real_data / "nasty_images", folder)
    check_both(stripes, stripes_model, folder, tmp_path)
