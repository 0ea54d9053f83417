"""Asks pip-audit for known vulnerabilities in the pins, and takes only those that audit.yaml accepts.

    python -m tools.audit constraints.txt audit.yaml --pip_audit .audit/bin/pip-audit

pip-audit itself says "no known vulnerabilities found", and exits 0, where it could look nothing up. Here that is a
failure.
Exit codes: 0 done, 1 failed, 2 invalid usage. A vulnerability that is not accepted is a failure, and so is a pin that
cannot be looked up.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from schemas.errors import MillraceError, UsageError

PYTHONS = ("3.11", "3.12", "3.13")  # each has pins of its own
ANSWER_SECONDS = 900


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """A known vulnerability of a pinned version."""

    package: str
    version: str
    id: str
    fixed_in: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # other names of the same one

    def __str__(self) -> str:
        fixed = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "no fix yet"
        return f"{self.package} {self.version}: {self.id} ({fixed})"


@dataclasses.dataclass(frozen=True)
class Accepted:
    """A finding that somebody has looked at and takes for now."""

    package: str
    id: str
    date: dt.date
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Whether this is the finding, by any of its names."""
        return self.package == finding.package and self.id in (finding.id, *finding.also)


def read_accepted(text: str, source: str) -> tuple[Accepted, ...]:
    """The accepted findings that a YAML file lists.

    Raises:
      UsageError: an entry lacks its package, id, date or reason.
    """
    try:
        entries = yaml.safe_load(text)["accepted"]
        accepted = tuple(Accepted(**entry) for entry in entries)
    except (yaml.YAMLError, TypeError, KeyError) as error:
        raise UsageError(f"{source}: expected `accepted:`, a list of package, id, date and reason: {error}") from error
    for entry in accepted:
        if not isinstance(entry.date, dt.date) or not str(entry.reason).strip():
            raise UsageError(f"{source}: {entry.package} {entry.id}: expected a date such as 2026-01-31 and a reason")
    return accepted


def pins_for(text: str, python: str) -> tuple[str, ...]:
    """The pins, name==version, that a version of Python installs."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pins = (Requirement(line) for line in lines if line)
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    return tuple(f"{p.name}{p.specifier}" for p in pins if p.marker is None or p.marker.evaluate(environment))


def read_report(report: Mapping[str, Any]) -> tuple[set[Finding], set[str]]:
    """What pip-audit's JSON says: the findings, and the packages that it could not look up."""
    findings, unknown = set(), set()
    for package in report["dependencies"]:
        if "skip_reason" in package:
            unknown.add(package["name"])
        for v in package.get("vulns", ()):
            names = (tuple(v.get("fix_versions", ())), tuple(v.get("aliases", ())))
            findings.add(Finding(package["name"], package["version"], v["id"], *names))
    return findings, unknown


def look_up(pip_audit: str, pins: Sequence[str]) -> Mapping[str, Any]:
    """pip-audit's report on exactly these pins.

    Raises:
      MillraceError: it cannot be run, or gives no report.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pins.txt"
        path.write_text("\n".join(pins) + "\n")
        command = [pip_audit, "-r", str(path), "--no-deps", "--disable-pip", "--progress-spinner", "off", "-f", "json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MillraceError(f"{pip_audit}: {error}") from error
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError as error:
        told = (done.stderr.strip().splitlines() or ["no word why"])[-1]
        raise MillraceError(f"{pip_audit}: gave no report (exit code {done.returncode}): {told}") from error


def judge(findings: set[Finding], unknown: set[str], accepted: Sequence[Accepted]) -> tuple[list[str], list[str]]:
    """What fails the audit, and what is merely told."""
    new = sorted(f for f in findings if not any(a.covers(f) for a in accepted))
    failures = [f"{finding}: raise the pin, or accept it in audit.yaml with a reason and a date" for finding in new]
    if unknown:
        some = ", ".join(sorted(unknown)[:5]) + (", ..." if len(unknown) > 5 else "")
        failures.append(f"{len(unknown)} pins could not be looked up, so nothing is known of them: {some}")
    notes = []
    for entry in accepted:
        if any(entry.covers(f) for f in findings):
            notes.append(f"{entry.package} {entry.id}: accepted on {entry.date}: {entry.reason}")
        elif entry.package not in unknown:
            notes.append(f"{entry.package} {entry.id}: no longer found; take it out of audit.yaml")
    return failures, notes


def main(argv: Sequence[str] | None = None) -> int:
    """Looks every pin up and tells what is wrong. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.audit", description="Known vulnerabilities in the pins.")
    parser.add_argument("constraints", help="the pins, such as constraints.txt")
    parser.add_argument("accepted", help="the accepted findings, such as audit.yaml")
    parser.add_argument("--pip_audit", default="pip-audit", help="the program; default: %(default)s")
    given = parser.parse_args(argv)
    try:
        accepted = read_accepted(Path(given.accepted).read_text(), given.accepted)
        text = Path(given.constraints).read_text()
        sets = sorted({pins_for(text, python) for python in PYTHONS})
        reports = [read_report(look_up(given.pip_audit, pins)) for pins in sets]
    except (MillraceError, OSError) as error:
        print(f"tools.audit: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    failures, notes = judge(set().union(*(f for f, _ in reports)), set().union(*(u for _, u in reports)), accepted)
    print("\n".join([*notes, *failures, f"{len(set().union(*sets))} pins, {len(failures)} to see to"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
