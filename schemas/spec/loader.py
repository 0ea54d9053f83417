"""Reads a schema file, a plain subset of YAML, and reports all of its mistakes at once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import yaml
from pydantic import ValidationError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.spec.images import ImageSchema
from schemas.spec.messages import FORMATS, Mistake, Path, explain, report, wrong_format
from schemas.spec.table import Schema

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16

# Only the words of YAML 1.2 have a meaning, so that `yes`, `no`, `on`, `off` and dates stay text. A number that Python
# would write differently (007, +5, 1_000) stays text as well, because tokens such as postal codes are compared as text.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}


_HALF = "found {!a}, which holds half of a surrogate pair: no character, and never in UTF-8 data"

AnySchema = Schema | ImageSchema


def load_schema(path: str) -> AnySchema:
    """Reads the schema that a YAML file declares.

    Args:
      path: the file, local or gs://.

    Raises:
      UsageError: the file cannot be read, or contains mistakes. The message has one line for each mistake: `file:line:
        key path: what was found and what is allowed`.
    """
    if not storage.exists(path):
        raise UsageError(f"{path}: no such schema file")
    if path.endswith((".csv", ".tsv", ".gz")):
        raise UsageError(f"{path}: is a table by its name; expected a schema, which `millrace init {path}` writes")
    try:
        with storage.wrap_errors(path), storage.open_read(path) as file:
            data = file.read(MAX_BYTES + 1)
    except MillraceError as error:
        raise UsageError(f"{error} (the schema file cannot be read)") from None
    return parse_schema(data, path)


def parse_schema(data: bytes, source: str) -> AnySchema:
    """Returns the schema that the bytes of a file declare.

    Args:
      data: the bytes.
      source: the name of the file, for messages.

    Raises:
      UsageError: there are mistakes.
    """
    reader = _Reader()
    try:
        value = reader.read(data)
    except _Stop as stop:
        raise UsageError(report(source, [stop.mistake])) from None
    if reader.mistakes:
        raise UsageError(report(source, reader.mistakes))
    if isinstance(value, dict) and (not isinstance(form := value.get("format"), str) or form not in FORMATS):
        raise UsageError(report(source, [wrong_format(value, reader.lines)]))
    try:
        model = FORMATS[value["format"] if isinstance(value, dict) else "csv"]
        return model.model_validate(value)
    except ValidationError as error:
        raise UsageError(report(source, explain(error, value, reader.lines))) from None


def records_called(form: str) -> str:
    """Returns the word for the records of a dataset of this format: rows or images."""
    return FORMATS[form].records


class _Stop(Exception):
    """A mistake after which the rest of the file cannot be read."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.mistake = Mistake(line, (), message)


class _PlainLoader(yaml.SafeLoader):
    """A YAML loader that refuses anchors, aliases, tags and deep nesting, and leaves all scalars as text."""

    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise _Stop(line, f"found the alias '*{event.anchor}'; aliases are not allowed: write the value out")
        if event.anchor is not None:
            raise _Stop(line, f"found the anchor '&{event.anchor}'; anchors are not allowed: write each value out")
        if event.tag is not None:
            raise _Stop(line, f"found the tag {event.tag!r}; tags are not allowed: write the plain value")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Stop(line, f"is nested more than {MAX_DEPTH} levels deep; no schema needs that")
        node: Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


_PlainLoader.yaml_implicit_resolvers = {}  # `_Reader` decides which texts are numbers and words


class _Reader:
    """Turns YAML nodes into dicts, tuples and plain values, and notes the line of every key and item."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.mistakes: list[Mistake] = []

    def read(self, data: bytes) -> object:
        """Returns the value of a file.

        Collects mistakes in `mistakes`; raises _Stop if the rest of the file cannot be read.
        """
        if len(data) > MAX_BYTES:
            raise _Stop(1, f"the file is larger than {MAX_BYTES // 1024} KiB; a schema is a page or two")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _Stop(data.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text") from None
        node = _compose(text)
        if node is None:
            raise _Stop(1, "the file is empty; a schema has the keys name, format, features and label")
        self.lines[()] = node.start_mark.line + 1
        return self._value(node, ())

    def _value(self, node: Node, path: Path) -> object:
        match node:
            case MappingNode():
                return dict(self._items(node, path))
            case SequenceNode():
                return tuple(self._placed(item, (*path, i), item) for i, item in enumerate(node.value))
            case ScalarNode():
                return self._scalar(node, path)
            case _:
                raise TypeError(f"YAML has no other nodes than these, found {type(node)}")

    def _placed(self, node: Node, path: Path, where: Node) -> object:
        """Returns the value of a node, and notes its line.

        The line is that of the node `where`, which is the value's key or the value itself.
        """
        self.lines[path] = where.start_mark.line + 1
        return self._value(node, path)

    def _items(self, node: MappingNode, path: Path) -> Iterator[tuple[str, object]]:
        """Yields the keys and values of a mapping. A key that is no text, or given twice, is a mistake and left out."""
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                self.mistakes.append(Mistake(line, path, "a key must be text, not a list or a mapping"))
                continue
            if not _is_unicode(key.value):
                self.mistakes.append(Mistake(line, path, _HALF.format(key.value)))
                continue
            if key.value in first:
                message = f"the key {key.value!r} is given twice (first in line {first[key.value]}); give it once"
                self.mistakes.append(Mistake(line, path, message))
                continue
            first[key.value] = line
            yield key.value, self._placed(value, (*path, key.value), key)

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        """Returns the value of a scalar: text, a number, or a truth value."""
        text: str = node.value
        if not _is_unicode(text):
            self.mistakes.append(Mistake(self.lines[path], path, _HALF.format(text)))
        if node.style is not None:
            return text  # a quoted text or a block
        if text in _WORDS:
            if _WORDS[text] is None:
                message = 'has no value; leave the key out, or write "" for an empty text'
                self.mistakes.append(Mistake(self.lines[path], path, message))
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text)
        if not _NUMBER.fullmatch(text):
            return text
        if not math.isfinite(float(text)):
            self.mistakes.append(Mistake(self.lines[path], path, f"found {text}; a number must fit a 64-bit float"))
        return float(text)


def _is_unicode(text: str) -> bool:
    """Whether a text has no surrogates, and so can be written in UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _compose(text: str) -> Node | None:
    """Returns the root node of a file with one YAML document; None if the file is empty.

    Raises _Stop for any other file.
    """
    try:
        loader = _PlainLoader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _Stop(line, f"found the character U+{error.character:04X}, which YAML does not allow") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = f"{error.context}: {error.problem}" if error.context else str(error.problem)
        if "another document" in problem:
            message = "found a second document ('---'); a schema file holds one"
        elif "'\\t'" in problem:
            message = "found a tab where YAML wants spaces; indent with spaces"
        else:
            message = f"is not YAML: {problem}"
        raise _Stop(mark.line + 1 if mark else 1, message) from None
