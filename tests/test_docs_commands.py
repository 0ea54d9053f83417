"""Every flag in a command of the pages exists: the command's `--help` names it."""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from tests.test_frozen_answers import ROOT, answer

BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r" *(?:\$ )?(millrace|python -m (?:schemas|beam_jobs|trainer|millrace|benchmarks)\S*) (.*)$")
FLAG = re.compile(r"--[a-z]\w*")


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command's program, and its words up to a pipe, a redirection or the next command."""
    blocks = "".join(BLOCK.findall(page.read_text())).replace("\\\n", " ")
    for line in filter(None, map(COMMAND.match, blocks.splitlines())):
        words = shlex.split(line[2], comments=True)
        yield line[1], list(itertools.takewhile(lambda word: word[:1] not in "|>&;", words))


@functools.cache
def flags(line: str) -> set[str]:
    """The flags in the help of a command; none if it is no command."""
    found = answer(f"{line} --help")
    return set(FLAG.findall(found["out"])) if found["exit"] in (0, None) else set()


@pytest.mark.parametrize("page", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")], ids=lambda page: page.name)
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
