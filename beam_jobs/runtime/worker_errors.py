"""Errors that workers raised, found in what a runner makes of them.

A runner in this process wraps an exception in others. From a worker in another process, the launcher gets only text: a
traceback inside a message of the runner. Beam repeats the exception
with the name of the step behind its message, so that the end of a message of several lines can be found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from schemas.errors import MillraceError

LONGEST = 400  # characters of an error that is none of ours
_TRACEBACK = "Traceback (most recent call last):"
_STEP = re.compile(r" \[while running '(?P<step>[^']*)'\]")
_BUNDLE = re.compile(r"\bbundle inst\d+ \S+ failed:\s*")  # Prism's own name for a piece of work
_AT_END = re.compile(r" \[while running '.*'\]$", re.DOTALL)


def raised(error: BaseException) -> MillraceError | None:
    """The MillraceError that a runner has wrapped in errors of its own; None if there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MillraceError):
            return type(seen)(_AT_END.sub("", str(seen)))
        seen = seen.__cause__ or seen.__context__
    return None


def reported(texts: Sequence[str]) -> MillraceError | None:
    """The last MillraceError whose traceback a runner reports, as it was raised; None if there is none."""
    classes = {f"{cls.__module__}.{cls.__qualname__}": cls for cls in _subclasses(MillraceError)}
    names = "|".join(re.escape(name) for name in sorted(classes, key=len, reverse=True))
    report = re.compile(rf"^({names}): ((?:(?!^{re.escape(_TRACEBACK)})[\s\S])*?){_STEP.pattern}", re.MULTILINE)
    for text in reversed(texts):
        found = report.findall(text)
        if found:
            name, message, _ = found[-1]
            return classes[name](message)
    return None


def cause(texts: Sequence[str]) -> str:
    """A clause about an error that is none of ours: the exception and the step of the last traceback.

    Without a traceback, no worker has said anything: the runner has lost one, or failed itself.
    """
    text = next((text for text in reversed(texts) if _TRACEBACK in text), None)
    if text is None:
        line = _one_line(_BUNDLE.sub("", texts[-1]) if texts else "")
        said = f"the runner says: {line}" if line else "the runner gave no reason"
        return f"and no worker reported an error: one may have been killed, such as for memory; {said}"
    lines = text.rpartition(_TRACEBACK)[2].splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip() and not line[0].isspace()), len(lines))
    message = "\n".join(lines[first:])
    step = _STEP.search(message)
    line = _one_line(_STEP.sub("", message))
    return line if step is None else f"in the step {step['step']!r}: {line}"


def _one_line(message: str) -> str:
    """A message on one line, shortened: those of TensorFlow's graphs have pages."""
    line = " ".join(message.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _subclasses(cls: type[MillraceError]) -> Iterator[type[MillraceError]]:
    yield cls
    for sub in cls.__subclasses__():
        yield from _subclasses(sub)
