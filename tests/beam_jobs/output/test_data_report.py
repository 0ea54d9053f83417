"""Each run has its report, made of what it wrote."""

from __future__ import annotations

import re
from pathlib import Path

from beam_jobs.runs.data_report import EACH
from beam_jobs.runs.job import run_job
from schemas.dataset import open_dataset
from schemas.dataset.command import main as dataset_command
from tests.support.drawn_images import write_folders
from tests.support.people import MEASURED_SCHEMA, make_job, people_csv


def report_of(output: Path) -> str:
    dataset = open_dataset(str(output))
    assert f"{dataset.run}/report.html" in {file.path for file in dataset.manifest.files}  # verified and kept with it
    return (output / dataset.run / "report.html").read_text()


def test_a_job_on_rows_reports_its_features_rejects_and_phases(tmp_path: Path, capsys) -> None:
    job = make_job(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(300) + "too,few\n" * 6)
    job.run()
    page = report_of(job.output)
    assert "too_few_columns" in page
    assert page.count("too,few") == 5
    assert f"{job.raw} : {len(people_csv(300)):,}" in page
    assert set(re.findall(r'data-name="([^"]+)"', page)) >= {"age"}
    assert [name for name in ("analyzing", "transforming", "writing") if f">{name}<" not in page] == []
    assert dataset_command(["verify", str(job.output)]) == 0


def test_a_job_on_images_shows_some_of_each_class(tmp_path: Path) -> None:
    from beam_jobs.core.options import JobOptions

    (tmp_path / "schema.yaml").write_text(
        "name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}, store: raw}\n"
        "split: {by: content, train: 1.0, eval: 0.0, test: 0.0}\n"
    )
    write_folders(tmp_path / "raw", each=EACH + 2)
    run_job(
        JobOptions(
            schema=str(tmp_path / "schema.yaml"),
            input=(str(tmp_path / "raw/*/*"),),
            output=str(tmp_path / "out"),
            compression="gzip",
            quiet=True,
        )
    )
    page = report_of(tmp_path / "out")
    classes = open_dataset(str(tmp_path / "out")).manifest.classes
    assert {name: page.count(f'<img alt="{name}"') for name in classes} == dict.fromkeys(classes, EACH)
    assert page.count("data:image/png;base64,") == EACH * len(classes)
