"""Modules are imported without the garbage collector, and TensorFlow starts without its noise unless it fails."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.libraries import quick_import
from schemas.samples import command as samples
from tests.support.commands import HELD, LOGGED, OTHER, ROOT, assert_held, run_program, run_started


@pytest.fixture
def probe(tmp_path, monkeypatch) -> Iterator[str]:
    """A module that records whether the garbage collector ran while it was imported, and that fails on request."""
    (tmp_path / "collector_probe.py").write_text("import gc\nenabled = gc.isenabled()\n")
    (tmp_path / "collector_failing.py").write_text("raise ImportError('no such library')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "collector_probe"
    sys.modules.pop("collector_probe", None)
    gc.freeze()  # as the whole run has it


def test_the_garbage_collector_is_paused_during_an_import_and_as_it_was_after_it(probe):
    quick_import("json", probe)
    assert not sys.modules.pop(probe).enabled
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    with pytest.raises(ImportError, match="no such library"):
        quick_import("collector_failing")
    assert gc.isenabled()
    gc.disable()
    try:
        quick_import(probe)
        assert not gc.isenabled()
    finally:
        gc.enable()


COMMANDS = {
    "preprocess": "beam_jobs.preprocess --schema {0}/schema.yaml --input {0}/raw.csv --output new",
    "train": "trainer.task --data_dir {0}/data --model_dir new",
    "predict": "trainer.predict --saved_model {0}/model --input {0}/raw.csv",
    "serve": "millrace.serve.command --model_dir {0}/model --port 0",
    "promote": "millrace.promote --from {0}/model --to new --data_dir {0}/data",
}


@pytest.fixture
def train(parcels: Path) -> list[str]:
    return COMMANDS["train"].format(parcels).split()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_starts_without_tensorflows_log_and_prints_the_rest_before_an_abort(
    name: str, parcels: Path, tmp_path: Path
) -> None:
    assert_held(COMMANDS[name].format(parcels).split(), tmp_path)


ENDS = [
    ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),  # 137 in a shell
    ("os.killpg(0, signal.SIGINT)", 130),
    ("raise ImportError('libtensorflow.so: no such file')", 1),
]


@pytest.mark.parametrize(("ends", "code"), ENDS)
def test_however_a_start_fails_the_rest_is_printed_and_the_exit_code_kept(
    ends: str, code: int, train: list[str], tmp_path: Path
) -> None:
    done = run_started(train, ends, tmp_path)
    assert HELD in done.stderr
    assert done.returncode == code


def test_with_verbose_nothing_is_left_out(train: list[str], tmp_path: Path) -> None:
    done = run_started([*train, "--verbose"], "os.abort()", tmp_path)
    assert "OPEN\n" + LOGGED + OTHER in done.stderr


# A TensorFlow whose start succeeds.
STUB = """
import os, subprocess, sys, types
from schemas import libraries

libraries._NVIDIA = tuple(sys.argv[2:])
tf = types.ModuleType("tensorflow")
tf.config = types.SimpleNamespace(list_physical_devices=lambda kind: os.write(2, os.environ["WRITTEN"].encode()) and [])
print("before", file=sys.stderr)
with libraries.starting_tensorflow():
    sys.modules["tensorflow"] = tf
    os.write(2, b"first\\n")
    child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print("after", file=sys.stderr)
child.kill()
exec(sys.argv[1])
"""


def start_stub(*argv: str, **env: str) -> str:
    """What is printed by a start that succeeds, and leaves a child that has its standard error."""
    env = {**os.environ, "WRITTEN": LOGGED + OTHER, **env}
    return run_program(STUB, *(argv or ("",)), env=env).stderr


def test_what_is_not_of_the_log_is_printed() -> None:
    assert start_stub() == f"before\nfirst\n{OTHER}after\n"


def test_a_gpu_that_is_not_found_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    quiet = f"before\nfirst\n{OTHER}after\n"
    output = start_stub("", str(tmp_path / "nvidia*"))
    note = output.removeprefix(quiet.removesuffix("after\n")).removesuffix("after\n")
    assert note.startswith("note: this machine has an NVIDIA GPU, but TensorFlow lists none")
    assert start_stub("", str(tmp_path / "nvidia*"), CUDA_VISIBLE_DEVICES="-1") == quiet
    assert start_stub("", str(tmp_path / "other*")) == quiet


@pytest.mark.parametrize(
    ("before", "stderr"),
    [
        ("sys.executable = '/no/such/python'", LOGGED + OTHER),
        ("sys.executable = '/bin/false'", ""),  # what is written is lost with the process, and the start goes on
        ("os.close(2)", ""),
    ],
)
def test_without_standard_error_or_another_process_nothing_is_left_out(before: str, stderr: str) -> None:
    code = f"import contextlib, os, sys\n{before}\nfrom schemas.libraries import without_log\nwith without_log():\n"
    code += "    with contextlib.suppress(OSError): os.write(2, os.environ['WRITTEN'].encode())\nprint('started')"
    env = {**os.environ, "WRITTEN": LOGGED + OTHER}
    settings: dict[str, Any] = {"cwd": ROOT, "env": env, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, "-c", code], check=True, **settings)
    assert (done.stdout, done.stderr) == ("started\n", stderr)


LEAVES = """
import multiprocessing.util, os, signal, sys, tempfile
from schemas import command

def work(argv, prog):
    tempfile.mkstemp(prefix="forgotten-")
    if "child" in argv:
        os.system(f"{sys.executable} -c 'import tempfile; tempfile.mkdtemp()'")
    if "pools" in argv:
        multiprocessing.util.get_temp_dir()  # as pools and servers of processes do, which remove it at the end
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
    settings = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **how}
    return subprocess.Popen([sys.executable, "-c", LEAVES, *argv], **settings)  # type: ignore[call-overload]


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@pytest.mark.parametrize(("argv", "code"), [(("fails",), 1), (("child",), 0), (("pools",), 0)])
def test_a_command_leaves_nothing_however_it_ends(temporary: Path, argv: tuple[str, ...], code: int) -> None:
    with leaves(*argv, stderr=subprocess.PIPE) as process:
        assert process.communicate()[1] == ""
    assert process.returncode == code
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
    started = [leaves("killed" if number % 2 else "child") for number in range(6)]
    printed = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, -signal.SIGKILL] * 3
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
