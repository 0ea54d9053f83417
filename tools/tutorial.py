"""Types the commands of a tutorial into a shell, and checks that they print what the page shows.

    python -m tools.tutorial docs/tutorials/table.md demo-out/table

A block without a language is typed. A block of `text` shows lines that it prints: in them, "..." stands for anything,
and a number with decimals for any number.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDED = "ended: "
VARIES = re.compile(r"\.\.\.|-?[\d,]*\.\d+")
NUMBER = r"-?[\d,]*\.?\d+(?:e-?\d+)?"  # what may be printed for a number with decimals: .963 may be 1 elsewhere


class Differs(Exception):
    """A command failed, or did not print what the page shows."""


def run(page: Path, folder: Path) -> None:
    """Types the commands of a page, and prints them and whatever they print. No process that they start survives.

    Args:
      page: the Markdown file.
      folder: where they are typed.

    Raises:
      Differs: a command failed, or a line that the page shows was not printed.
    """
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    commands = [text for language, text in blocks if not language]
    printed: list[str] = []
    with contextlib.closing(_sections(commands, folder)) as sections:
        for language, text in blocks:
            if not language:
                print("\n" + "".join(f"$ {line}\n" for line in text.splitlines()), end="", flush=True)
                printed = next(sections)
                if printed[-1] != f"{ENDED}0":
                    raise Differs(f"{page}: failed, {printed[-1]}\n{text}")
            for line in text.splitlines() if language == "text" else ():
                if not any(re.fullmatch(_pattern(line), other) for other in printed):
                    raise Differs(f"{page}: shows a line that was not printed: {line}")


def _sections(commands: Sequence[str], folder: Path) -> Generator[list[str], None, None]:
    """Types blocks of commands into one shell. Yields the lines of each, of which the last has the exit code."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    reading, writing = os.pipe()  # and no file, of which a shell in the shell would read more than its part
    with os.fdopen(writing, "w", encoding="utf-8") as script:
        script.writelines(f"{text}printf '\\n{ENDED}%s\\n' $?\n" for text in commands)
    with subprocess.Popen(
        ["bash"], cwd=folder, env=environment, text=True, errors="replace", start_new_session=True,  # noqa: S607
        stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as shell:  # fmt: skip
        os.close(reading)
        lines: list[str] = []
        try:
            for line in shell.stdout or ():
                lines.append(line.rstrip("\n"))
                if line.startswith(ENDED):
                    yield lines
                    lines = []
                else:
                    print(line, end="", flush=True)
            yield [*lines, f"{ENDED}the shell has ended"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)


def _pattern(line: str) -> str:
    """The pattern of the printed lines that a line of a page stands for."""
    fixed, varying = VARIES.split(line), VARIES.findall(line)
    kinds = [".*" if part == "..." else NUMBER for part in varying]
    return "".join(re.escape(text) + kind for text, kind in zip(fixed, [*kinds, ""], strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Types a page. Returns the exit code: 0, 1 if it differs, or 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tools.tutorial", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("page", type=Path, help="the Markdown file")
    parser.add_argument("folder", type=Path, help="where commands are typed, made if it is missing")
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        run(options.page, options.folder)
    except Differs as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; what was started has ended", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
