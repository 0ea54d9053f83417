"""What a replay refuses, and what it leaves behind when it fails: the dataset is as it was."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import layout, lease, open_dataset
from schemas.errors import MillraceError, UsageError
from tests.support.light_commands import assert_light
from tests.support.replaying import HEADER, ROWS, SCHEMA, accounts_hold, as_good, contents, rejects_of

pytestmark = pytest.mark.slow

EMPTY = str(Path(__file__).parent / "__init__.py")

LINE: dict[str, Any] = {"source": "rows.csv", "offset": 5, "raw": "k1,2,a,no"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "2: is not JSON"),
        ("[]", r"2: found '\[\]'; expected an object"),
        ("\xff".encode("latin-1"), "2: is not UTF-8 at byte 0"),
        ({**LINE, "offset": "5"}, "2: offset is '5'; expected a whole number"),
        ({"offset": 5, "raw": "x"}, "2: source is 'missing'; expected a path"),
        ({"source": "rows.csv", "offset": 5}, "2: holds neither raw nor raw_base64"),
        ({**LINE, "raw_base64": "eA=="}, "2: holds both raw and raw_base64"),
        ({"source": "rows.csv", "offset": 5, "raw_base64": "?"}, "2: raw_base64 is not base64"),
        ({**LINE, "raw": 5}, "2: raw is '5'; expected text"),
        ({**LINE, "source": "other.csv"}, "2: 'other.csv' is not an input of this dataset, which was read from "),
        ({**LINE, "raw": "\ud800"}, r"2: raw holds '\\ud800', which .*rows.csv cannot: it is in utf-8"),
        ("twice", "2: corrects the record at .* in another way than .*:1 does"),
    ],
)
def test_a_line_that_cannot_be_taken_is_named_and_nothing_is_done(shared_rejecting, line, message):
    folder, dataset = shared_rejecting
    good = json.loads(rejects_of(dataset)[0].to_json()) | {"raw": ROWS[3]}
    if line == "twice":
        line = good | {"raw": ROWS[4]}
    if isinstance(line, dict):
        place = {"source": good["source"], "offset": good["offset"]} if line.get("source") == "rows.csv" else {}
        line = json.dumps({**line, **(place if type(line.get("offset")) is int else {})})
    data = line if isinstance(line, bytes) else line.encode()
    path = folder.path / "bad.jsonl"
    path.write_bytes(json.dumps(good).encode() + b"\n" + data + b"\n")
    with pytest.raises(UsageError, match=rf"bad\.jsonl:{message}"):
        folder.replay(str(path))
    assert open_dataset(folder.output).run == dataset.run


def test_rejects_corrected_in_the_run_itself_are_refused(folder, rejecting):
    (path,) = Path(rejecting.run_dir).glob("rejects-*")
    text = path.read_text()
    path.write_text(text.replace("k3,old", "k3,020"))
    with pytest.raises(MillraceError, match=r"was changed since the dataset was written.*in a copy"):
        folder.replay(str(path))


def test_a_transform_that_is_not_the_datasets_own_is_refused(folder, rejecting):
    corrected = folder.correct(rejecting, as_good)
    graph = Path(rejecting.run_dir) / layout.TRANSFORM_FN / "saved_model.pb"
    data = bytearray(graph.read_bytes())
    data[-1] ^= 1
    graph.write_bytes(data)
    with pytest.raises(MillraceError, match=r"saved_model\.pb: was changed since"):
        folder.replay(corrected)
    graph.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert open_dataset(folder.output).run == rejecting.run


def test_a_replay_that_fails_at_the_last_step_leaves_the_dataset_and_can_be_run_again(folder, rejecting, monkeypatch):
    corrected = folder.correct(rejecting, as_good)
    before = contents(rejecting)

    def disk_full(*_: object) -> None:
        raise MillraceError("no space left on device")

    monkeypatch.setattr(lease.Lease, "put", disk_full)
    with pytest.raises(MillraceError, match="no space left"):
        folder.replay(corrected)
    monkeypatch.undo()
    assert open_dataset(folder.output).manifest == rejecting.manifest
    assert contents(open_dataset(folder.output)) == before
    assert {p.name for p in Path(folder.output).iterdir()} <= {rejecting.run, layout.MANIFEST, layout.FAILED}
    assert folder.replay(corrected).added == 4
    accounts_hold(open_dataset(folder.output))


def test_a_replay_that_is_interrupted_behind_its_commit_has_succeeded(folder, rejecting, monkeypatch):
    put = lease.Lease.put

    def interrupted(*args: Any) -> None:
        put(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(lease.Lease, "put", interrupted)
    assert folder.replay(folder.correct(rejecting, as_good)).added == 4
    accounts_hold(open_dataset(folder.output))


def test_a_replay_waits_for_no_other_job(shared_rejecting):
    folder, dataset = shared_rejecting
    corrected = folder.correct(dataset, as_good)
    with lease.hold(folder.output, run="another"), pytest.raises(MillraceError, match="another job is writing to it"):
        folder.replay(corrected)
    assert open_dataset(folder.output).run == dataset.run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replay", "x.jsonl"], "required: --append_to"),
        (["--replay", "x", "--append_to", "out", "--schema", "s.yaml"], "--schema: not with --replay"),
        (["--replay", "x", "--append_to", "out", "--max_rejects=5"], "--max_rejects: not with --replay"),
        (["--replay", "x", "--append_to", "out", "--runner", "FnApiRuner"], "did you mean FnApiRunner?"),
        (["--replay", "nowhere.jsonl", "--append_to", "out"], "nowhere.jsonl: no such file"),
        (["--replay", __file__, "--append_to", "nowhere"], "is not JSON"),
        (["--replay", EMPTY, "--append_to", "nowhere"], "--append_to nowhere: nowhere: no manifest.json"),
    ],
)
def test_usage_errors_are_reported_before_any_work(arguments, message):
    assert_light("beam_jobs.preprocess", arguments, code=2, message=message)


@pytest.mark.slow
def test_text_for_a_record_that_was_shown_in_another_encoding_is_refused(folder):
    schema = SCHEMA.replace("header: present", "header: present, encoding: latin-1")
    source = Path(folder.write("rows.csv", []))
    header, *rows = [line.encode() for line in (HEADER, *ROWS)]
    odd = rows[3].replace(rows[3].split(b",")[1], b"\xc3\xa9", 1)  # two signs of Latin-1, and one of UTF-8
    source.write_bytes(b"\n".join([header, *rows[:3], odd, *rows[4:], b""]))
    dataset = folder.job(schema, str(source))
    (reject,) = [r for r in rejects_of(dataset) if r.raw == odd]
    line = json.loads(reject.to_json())
    as_text = folder.write("text.jsonl", [json.dumps({**line, "raw": ROWS[3]})])
    with pytest.raises(UsageError, match=r"is Latin-1, and its bytes are UTF-8 as well.*as raw_base64"):
        folder.replay(as_text)
    del line["raw"]
    as_bytes = folder.write("bytes.jsonl", [json.dumps({**line, "raw_base64": base64.b64encode(rows[3]).decode()})])
    assert folder.replay(as_bytes).added == 1
