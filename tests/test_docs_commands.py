"""The commands of the pages: every flag exists, and the tutorials do, typed as written, what they say."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from millrace import cli
from tests.support.commands import ROOT, ended

BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
TUTORIAL_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = r"\.\.\.|-?[\d,]*\.\d+"  # what a page may show otherwise than it is printed: not its whole numbers
NUMBER = r"-?[\d,]*\.?\d+(?:e-?\d+)?"  # what may be printed for one with decimals: .963 of this machine is 1 on another
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
IN_THE_CHECKOUT = "cloud"  # its commands build servers there
COMMAND = re.compile(r" *(?:\$ )?(millrace|python -m (?:schemas|beam_jobs|trainer|millrace|benchmarks)\S*) (.*)$")
FLAG = re.compile(r"--[a-z]\w*")


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command's program, and its words up to a pipe, a redirection or the next command."""
    blocks = "".join(BLOCK.findall(page.read_text())).replace("\\\n", " ")
    for line in filter(None, map(COMMAND.match, blocks.splitlines())):
        words = shlex.split(line[2], comments=True)
        yield line[1], list(itertools.takewhile(lambda word: word[:1] not in "|>&;", words))


def run(line: str) -> Any:
    """Runs a command line, `millrace ...` or `python -m MODULE ...`, in this process. Returns its exit code."""
    first, *rest = shlex.split(line)
    try:
        if first == "millrace":
            return cli.main(rest)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
            patch.setattr(sys, "argv", rest[1:])
            return runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code


@functools.cache
def flags(line: str) -> set[str]:
    """The flags in the help of a command; none if it is no command."""
    done = ended(run, f"{line} --help")
    return set(FLAG.findall(done.out)) if done.code in (0, None) else set()


@pytest.mark.parametrize("page", [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")], ids=lambda page: page.name)
def test_every_flag_in_a_command_of_a_page_exists(page: Path) -> None:
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    beam = {flag for action in parser._actions for flag in action.option_strings}
    for program, words in commands(page):
        own, _, passed_on = shlex.join(words).partition(" -- ")
        known = [flags(shlex.join([*program.split(), *words[:count]])) for count in range(3)]
        assert set(FLAG.findall(own)) <= beam.union(*known), (program, own)
        assert set(FLAG.findall(passed_on)) <= flags("millrace train"), (program, passed_on)


def typed(script: str, folder: Path) -> str:
    """What a shell prints to which a script is typed, in a folder. Whatever it has started has ended then."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        ["bash"], cwd=folder, env=environment, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as shell:  # fmt: skip
        try:
            return shell.communicate(script)[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.cloud if page.stem == IN_THE_CHECKOUT else pytest.mark.long)
        for page in TUTORIALS
    ],
)
def test_a_tutorial_typed_as_written_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    blocks = TUTORIAL_BLOCK.findall(page.read_text())
    script = "".join(f"{text}printf '\\nended: %s\\n' $?\n" for kind, text in blocks if not kind)
    printed = typed(script, ROOT if page.stem == IN_THE_CHECKOUT else tmp_path)
    sections = iter(re.split(r"^ended: (\d+)\n", printed, flags=re.MULTILINE))
    seen = ""
    for kind, text in blocks:
        if not kind:
            seen, status = next(sections), next(sections, "none")
            assert status == "0", f"{text}{seen}"
        for line in text.splitlines() if kind == "text" else ():
            fixed, varying = re.split(VARIES, line), re.findall(VARIES, line)
            kinds = [".*" if part == "..." else NUMBER for part in varying]
            pattern = "".join(map("".join, zip(map(re.escape, fixed), [*kinds, ""], strict=True)))
            assert re.search(f"^{pattern}$", seen, re.MULTILINE), f"{line!r} is not in\n{seen}"
