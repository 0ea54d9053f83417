"""The audit of the pins: what is found fails it unless it is accepted, and so does what could not be looked up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.audit import main, pins_for, read_accepted

ROOT = Path(__file__).resolve().parents[2]
PINS = 'a==1.0  # a comment\n# another\nb==2; python_version < "3.13"\nb==3; python_version >= "3.13"\n'
BAD = {"id": "PYSEC-1", "fix_versions": ["1.1"], "aliases": ["CVE-1"]}
ACCEPTED = 'accepted: [{package: a, id: CVE-1, date: 2026-01-31, reason: "not called here"}]'


def audit(folder: Path, report: dict, accepted: str) -> int:
    """The exit code where pip-audit gives this report."""
    (folder / "pins.txt").write_text(PINS)
    (folder / "audit.yaml").write_text(accepted)
    program = folder / "pip-audit"
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(report))})\n")
    program.chmod(0o755)
    return main([str(folder / "pins.txt"), str(folder / "audit.yaml"), "--pip_audit", str(program)])


def report(*, vulns=(), **more):
    return {"dependencies": [{"name": "a", "version": "1.0", "vulns": list(vulns)}, *more.get("others", ())]}


def test_each_python_has_its_pins():
    assert pins_for(PINS, "3.11") == ("a==1.0", "b==2")
    assert pins_for(PINS, "3.13") == ("a==1.0", "b==3")


@pytest.mark.parametrize(
    ("found", "accepted", "code", "told"),
    [
        (report(), "accepted: []", 0, "3 pins, 0 to see to"),
        (report(vulns=[BAD]), "accepted: []", 1, "a 1.0: PYSEC-1 (fixed in 1.1): raise the pin, or accept it in audit"),
        (report(vulns=[BAD]), ACCEPTED, 0, "a CVE-1: accepted on 2026-01-31: not called here"),
        (report(), ACCEPTED, 0, "a CVE-1: no longer found; take it out of audit.yaml"),
        (
            report(others=[{"name": "b", "skip_reason": "not found on PyPI"}]),
            "accepted: []",
            1,
            "1 pins could not be looked up, so nothing is known of them: b",
        ),
    ],
)
def test_what_fails_the_audit(tmp_path, capsys, found, accepted, code, told):
    assert audit(tmp_path, found, accepted) == code
    assert told in capsys.readouterr().out


def test_a_missing_or_silent_program_fails_the_audit(tmp_path, capsys):
    (tmp_path / "pins.txt").write_text(PINS)
    (tmp_path / "audit.yaml").write_text("accepted: []")
    for program, message in (("nowhere", "No such file"), ("true", "gave no report (exit code 0): no word why")):
        assert main([str(tmp_path / "pins.txt"), str(tmp_path / "audit.yaml"), "--pip_audit", program]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        'accepted: [{package: a, id: b, date: soon, reason: "x"}]',
        'accepted: [{package: a, id: b, date: 2026-01-31, reason: " "}]',
        "accepted: !!python/name:os.system",
    ],
)
def test_an_entry_without_date_or_reason_is_refused(tmp_path, capsys, text):
    assert audit(tmp_path, report(), text) == 2
    assert "audit.yaml" in capsys.readouterr().err


def test_the_files_of_this_project_are_as_the_audit_wants_them():
    read_accepted((ROOT / "audit.yaml").read_text(), "audit.yaml")
    text = (ROOT / "constraints.txt").read_text()
    for python in ("3.11", "3.13"):
        names = [pin.partition("==")[0] for pin in pins_for(text, python)]
        assert len(names) == len(set(names)) > 100
