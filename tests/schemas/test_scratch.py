"""What a command leaves in the system's temporary folder: nothing, and what a killed one left goes with the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.samples import command as samples

LEAVES = """
import os, signal, sys, tempfile
from schemas import command

def work(argv, prog):
    tempfile.mkstemp(prefix="forgotten-")
    if "child" in argv:
        os.system(f"{sys.executable} -c 'import tempfile; tempfile.mkdtemp()'")
    if "killed" in argv:
        os.kill(os.getpid(), signal.SIGKILL)
    if "waits" in argv:
        print(tempfile.gettempdir(), flush=True)
        sys.stdin.readline()
    print(sorted(os.listdir(tempfile.gettempdir())), flush=True)
    return command.Report("done", {}, 1 if "fails" in argv else 0)

sys.exit(command.run(work, sys.argv[1:], prog="leaves"))
"""


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The system's temporary folder, at a path as short as it usually is."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def leaves(*argv: str, **how: object) -> subprocess.Popen[str]:
    """A command that forgets files in the temporary folder."""
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **how}
    return subprocess.Popen([sys.executable, "-c", LEAVES, *argv], **given)  # type: ignore[call-overload]


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@pytest.mark.parametrize(("argv", "code"), [((), 0), (("fails",), 1), (("child",), 0)])
def test_a_command_leaves_nothing_however_it_ends(temporary: Path, argv: tuple[str, ...], code: int) -> None:
    with leaves(*argv) as process:
        assert process.wait() == code
    assert list(temporary.iterdir()) == []


def test_what_a_killed_command_left_goes_with_the_next_and_what_a_living_one_uses_stays(temporary: Path) -> None:
    with leaves("killed") as process:
        assert process.wait() == -signal.SIGKILL
    (left,) = temporary.iterdir()
    with leaves("waits") as living:
        used = Path(_line(living))
        assert not left.exists()
        with leaves() as other:
            assert other.wait() == 0
        assert [path.name[:10] for path in used.iterdir()] == ["forgotten-"]
        living.communicate("\n")
    assert list(temporary.iterdir()) == []


def test_a_command_that_another_one_started_uses_its_folder_and_keeps_it_if_that_one_is_killed(temporary: Path) -> None:
    with leaves("waits") as parent:
        shared = _line(parent)
        with leaves("waits", env={**os.environ, "TMPDIR": shared}) as child:
            assert _line(child) == shared
            parent.kill()
            parent.wait()
            with leaves() as other:
                assert other.wait() == 0
            assert len(list(Path(shared).iterdir())) == 2
            child.communicate("\n")
    assert list(temporary.iterdir()) == []


def test_many_commands_at_once_take_nothing_from_each_other(temporary: Path) -> None:
    started = [leaves("killed" if number % 2 else "child") for number in range(12)]
    printed = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, -signal.SIGKILL] * 6
    assert all(text.count("forgotten-") == 1 and text.count("'tmp") == 1 for text in printed[::2])
    with leaves() as process:
        assert process.wait() == 0
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "file", "folder of another name"])
def test_what_is_no_folder_of_ours_stays(temporary: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "kept").write_text("kept")
    place = temporary / "millrace.abcdefgh"
    if kind == "link":
        place.symlink_to(tmp_path)
    elif kind == "file":
        place.write_text("kept")
    else:
        place = temporary / "millrace.longer_than_ours"
        place.mkdir()
    with leaves() as process:
        assert process.wait() == 0
    assert os.path.lexists(place)
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_folder_is_for_its_user_alone(temporary: Path) -> None:
    with leaves("waits") as process:
        assert os.stat(_line(process)).st_mode & 0o777 == 0o700
        process.communicate("\n")


@pytest.mark.parametrize("place", ["", "/" + "deep/" * 20])
def test_a_command_works_where_there_can_be_no_such_folder(temporary: Path, place: str, tmp_path: Path) -> None:
    folder = temporary if place else temporary / "missing"
    if place:
        folder = Path(f"{temporary}{place}")
        folder.mkdir(parents=True)
    with leaves("fails", env={**os.environ, "TMPDIR": str(folder)}) as process:
        assert process.wait() == 1


def test_temporary_files_are_where_they_were_after_a_command_in_this_process(temporary: Path, tmp_path: Path) -> None:
    before = tempfile.gettempdir()
    assert samples.main(["covertype", str(tmp_path / "rows.csv"), "--rows", "10"]) == 0
    assert tempfile.gettempdir() == before
    assert os.environ["TMPDIR"] == str(temporary)
