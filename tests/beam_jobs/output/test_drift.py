"""Thresholds of drift in a job: what fails it, what it warns of, and what its run says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beam_jobs.preprocess import main
from beam_jobs.runs.job import check_inputs
from schemas.dataset import open_dataset
from schemas.dataset.command import main as dataset_command
from schemas.dataset.manifest import read_manifest
from schemas.errors import MillraceError, UsageError
from tests.support.people import LEAN_SCHEMA, Job, people_csv
from tests.support.replaying import BAD, HEADER, ROWS, SCHEMA, Folder

BY_FILE = LEAN_SCHEMA.replace(
    "split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}", 'split: {by: file, train: "*train.csv", eval: "*eval.csv"}'
)


def shifted(text: str, by: int) -> str:
    """The same rows with another `size`."""
    first, *rows = text.splitlines()
    cells = [row.split(",") for row in rows]
    for row in cells:
        row[4] = str(int(row[4]) + by)
    return "\n".join([first, *(",".join(row) for row in cells)]) + "\n"


def limited(job: Job, drift: str, schema: str = LEAN_SCHEMA) -> None:
    job.schema.write_text(f"{schema}drift: {drift}\n")


def drift_of(output: Path) -> list[dict]:
    return json.loads((output / read_manifest(str(output)).run / "drift.json").read_text())["comparisons"]


def test_a_job_that_replaces_a_dataset_fails_above_the_threshold_and_keeps_it(written: Job, capsys) -> None:
    before = (written.output / "manifest.json").read_bytes()
    limited(written, "{fail: 0.1}")
    written.raw.write_text(shifted(people_csv(500), 60))
    argv = ["--schema", str(written.schema), "--input", str(written.raw), "--output", str(written.output), "--quiet"]
    assert main([*argv, "--overwrite"]) == 1
    error = capsys.readouterr().err
    assert f"the new train against train of {written.output}, run {json.loads(before)['run']}: size drifted by" in error
    assert "> 0.1 (Jensen-Shannon" in error
    assert (written.output / "manifest.json").read_bytes() == before
    assert {path.name for path in written.output.iterdir()} == {"manifest.json", json.loads(before)["run"]}
    assert dataset_command(["verify", str(written.output)]) == 0


def test_a_job_warns_above_the_threshold_and_its_report_and_summary_say_so(written: Job, capsys) -> None:
    limited(written, "{warn: 0.1}")
    written.raw.write_text(shifted(people_csv(500), 60))
    argv = ["--schema", str(written.schema), "--input", str(written.raw), "--output", str(written.output), "--quiet"]
    assert main([*argv, "--overwrite"]) == 0
    told = capsys.readouterr().out
    manifest = read_manifest(str(written.output))
    (warning,) = [warning for warning in manifest.warnings if warning.code == "drift"]
    assert warning.feature == "size"
    assert f"warning    {warning.message}" in told
    assert "drift      eval against train: ok: " in told
    assert f"drift      the new train against train of {written.output}" in told
    assert [found["verdict"] for found in drift_of(written.output)] == ["ok", "ok", "warn"]
    assert f"{manifest.run}/drift.json" in {file.path for file in manifest.files}
    page = (written.output / manifest.run / "report.html").read_text()
    assert '<section id="drift">' in page
    assert page.count("against <b>train</b>") == 2
    assert warning.message.split(",")[0].replace(">", "&gt;") in page
    assert dataset_command(["verify", str(written.output)]) == 0


def test_train_against_eval_is_always_there_and_is_what_a_threshold_of_a_feature_looks_at(people: Job) -> None:
    people.schema.write_text(BY_FILE)
    parts = [people.folder / name for name in ("train.csv", "eval.csv")]
    parts[0].write_text(people_csv(300))
    parts[1].write_text(shifted(people_csv(200), 40))
    inputs = tuple(map(str, parts))
    people.run(input=inputs)
    (found,) = drift_of(people.output)
    assert (found["first"], found["second"], found["rows"]) == ("train", "eval", [300, 200])
    assert found["verdict"] == "not_judged"
    assert found["features"][0]["name"] == "size"
    assert found["told"].startswith("not judged: no threshold set; ")
    own = BY_FILE.replace("{name: size, kind: numeric,", "{name: size, kind: numeric, drift: %s,")
    people.schema.write_text(own % "0.05" + "drift: none\n")
    with pytest.raises(MillraceError, match=r"eval against train: size drifted by .* > 0\.05"):
        people.run(input=inputs, overwrite=True)
    people.schema.write_text(own % "none" + "drift: 0.05\n")
    people.run(input=inputs, overwrite=True)
    assert [found["second"] for found in drift_of(people.output)] == ["eval", "the new train"]


def test_compare_to_another_dataset(people: Job, people_once: Job) -> None:
    limited(people, "0.1")
    people.raw.write_text(shifted(people_csv(500), 60))
    with pytest.raises(MillraceError, match=r"has drifted: the new train against train of .*: size drifted"):
        people.run(compare_to=str(people_once.output))
    assert not (people.output / "manifest.json").exists()
    people.raw.write_text(people_csv(500))
    people.run(compare_to=str(people_once.output))
    assert drift_of(people.output)[-1]["verdict"] == "ok"


def test_few_rows_trip_no_threshold(people: Job) -> None:
    limited(people, "0.01")
    people.raw.write_text(people_csv(40))
    people.run()
    assert max(found["features"][0]["distance"] for found in drift_of(people.output)) > 0.01


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"statistics": False}, "--no_statistics: .* sets thresholds of drift"),
        ({"compare_to": "{folder}"}, "--compare_to: .*no manifest.json"),
        ({"compare_to": "{old}"}, "--compare_to: .* has no statistics to compare"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_is_read(people: Job, changes: dict, told: str) -> None:
    limited(people, "0.1")
    old = Path(__file__).parents[2] / "fixtures" / "v0_1_0" / "csv" / "data"
    given = {k: v.format(folder=people.folder, old=old) if isinstance(v, str) else v for k, v in changes.items()}
    with pytest.raises(UsageError, match=told):
        check_inputs(people.options(**given))
    people.schema.write_text(LEAN_SCHEMA)
    with pytest.raises(UsageError, match="compare_to compares statistics"):
        check_inputs(people.options(statistics=False, compare_to=str(people.folder)))


def test_a_replaced_dataset_without_statistics_is_passed_over_and_thresholds_say_so(people: Job) -> None:
    people.run(statistics=False)
    assert not list(people.output.glob("*/drift.json"))
    limited(people, "0.5")
    people.run(overwrite=True)
    assert [found["second"] for found in drift_of(people.output)] == ["eval", "test"]
    (warning,) = [found for found in read_manifest(str(people.output)).warnings if found.code == "drift_not_compared"]
    assert warning.message.startswith("the schema's thresholds of drift were not checked against the dataset that is ")
    assert f"{people.output}: has no statistics to compare" in warning.message


def test_thresholds_change_no_fingerprint_so_a_transform_is_still_compatible(written: Job) -> None:
    limited(written, "{warn: 0.5}")
    first = open_dataset(str(written.output))
    second = written.run(output=str(written.folder / "more"), transform_from=str(written.output))
    assert second.manifest.schema_fingerprint == first.manifest.schema_fingerprint


def test_a_replay_compares_the_splits_anew(folder: Folder) -> None:
    base = folder.job(f"{SCHEMA}drift: 0.9\n", folder.write("rows.csv", [HEADER, *BAD]), max_rejects=10)
    before = [found["rows"] for found in drift_of(Path(folder.output))]
    report = (Path(folder.output) / base.run / "report.html").read_text()
    folder.replay(folder.correct(base, lambda reject: ROWS[int(reject.raw.split(b",")[0][1:])]))
    after = [found["rows"] for found in drift_of(Path(folder.output))]
    assert sum(before[0]) + before[1][1] == 36
    assert sum(after[0]) + after[1][1] == 40
    run = read_manifest(folder.output).run
    page = (Path(folder.output) / run / "report.html").read_text()
    assert page != report
    assert run in page
