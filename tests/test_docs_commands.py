"""The commands of the pages: every flag exists, and the tutorials do, typed as written, what they say."""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import runpy
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from millrace import cli
from tests.support.commands import ROOT, ended
from tests.support.processes import until
from tools import tutorial

BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
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
        flag_sets = [flags(shlex.join([*program.split(), *words[:count]])) for count in range(3)]
        assert set(FLAG.findall(own)) <= beam.union(*flag_sets), (program, own)
        assert set(FLAG.findall(passed_on)) <= flags("millrace train"), (program, passed_on)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.cloud if page.stem == IN_THE_CHECKOUT else pytest.mark.long)
        for page in TUTORIALS
    ],
)
def test_a_tutorial_typed_as_written_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    tutorial.run(page, ROOT if page.stem == IN_THE_CHECKOUT else tmp_path)


PAGE = """
```
printf 'a loss of %s\\n' 12.5
```

```text
a loss of 0.25
```

```
bash
```

```
exit
```

```
cat page.md
```
"""


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (PAGE, None),
        (PAGE.replace("0.25", "..."), None),
        (PAGE.replace("0.25", "3"), "shows a line that was not printed: a loss of 3"),
        (PAGE.replace("cat page.md", "false"), "failed, ended: 1\nfalse"),
        (PAGE.replace("cat page.md", "exit 3"), "failed, ended: the shell has ended"),
    ],
    ids=["as shown", "dots", "another line", "a failure", "an end"],
)
def test_a_tutorial_that_differs_is_named(page: str, error: str | None, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    if error is None:
        tutorial.run(path, tmp_path)
    else:
        with pytest.raises(tutorial.Differs, match=re.escape(error)):
            tutorial.run(path, tmp_path)


def test_what_a_tutorial_starts_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("```\nsleep 1000 & echo $! > pid\n```\n")
    tutorial.run(path, tmp_path)
    process = Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    until(lambda: not process.exists() or not process.read_bytes(), "the process ends")
