"""A worker's error in the text of a runner: found by its class, with the whole of its message and nothing else."""

from __future__ import annotations

import traceback

import pytest

from beam_jobs.core.accounting import TooManyRejects
from beam_jobs.engines import remote_job
from schemas.errors import MillraceError, UsageError

MESSAGES = [
    "rows.csv: 3 bad rows",
    "two\nlines",
    "it ends with: colons: and [brackets]",
    "a name like [while waiting 'x'] within",
    "Unicode: Köln",
]
KILLED = "and no worker reported an error: one may have been killed, such as for memory"


def as_beam_reports(error: Exception, *, step: str = "ReadTrain") -> str:
    """What Beam's worker sends: the error's traceback, and that of the same error with the name of the step."""
    try:
        try:
            raise error
        except Exception as first:
            raise type(first)(f"{first} [while running '{step}']").with_traceback(first.__traceback__)  # noqa: B904
    except Exception:
        return traceback.format_exc()


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("cls", [MillraceError, TooManyRejects, UsageError])
@pytest.mark.parametrize(
    "around", ["{}", "bundle inst007 stage-009 failed:{}", "generic::unknown: {}\n\nat worker-1\n"]
)
def test_an_error_of_ours_comes_out_as_it_was_raised(cls: type[MillraceError], message: str, around: str) -> None:
    found = remote_job.reported(["a message before", around.format(as_beam_reports(cls(message)))])
    assert type(found) is cls
    assert str(found) == message


def test_the_last_error_of_ours_counts() -> None:
    texts = [as_beam_reports(MillraceError("first")), as_beam_reports(MillraceError("second")), "work item failed"]
    assert str(remote_job.reported(texts)) == "second"


@pytest.mark.parametrize(
    "text",
    ["", "SDK worker disconnected", "the name schemas.errors.MillraceError alone", as_beam_reports(ValueError())],
)
def test_other_texts_hold_no_error_of_ours(text: str) -> None:
    assert remote_job.reported([text]) is None


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ([], f"{KILLED}; the runner gave no reason"),
        ([""], f"{KILLED}; the runner gave no reason"),
        (["SDK worker disconnected:\n  worker 1"], f"{KILLED}; the runner says: SDK worker disconnected: worker 1"),
        (["bundle inst005 stage-003 failed:worker lost"], f"{KILLED}; the runner says: worker lost"),
        ([as_beam_reports(ValueError("no\nluck"), step="Encode")], "in the step 'Encode': ValueError: no luck"),
        ([as_beam_reports(KeyError("x"), step="A/B"), "the job failed"], "in the step 'A/B': KeyError: \"'x'\""),
    ],
)
def test_another_error_becomes_one_line_with_its_step(texts: list[str], line: str) -> None:
    assert remote_job.cause(texts) == line


def test_a_long_message_is_shortened() -> None:
    line = remote_job.cause([as_beam_reports(ValueError("x" * 10_000))])
    assert line.startswith("in the step 'ReadTrain': ValueError: xxx")
    assert line.endswith("...")
    assert len(line) < 600
