"""Explains the mistakes in a schema file: the line, the path of keys, what was found, and what is allowed."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from schemas.errors import counted
from schemas.spec.features import Feature, Label
from schemas.spec.forms import PromoteRules
from schemas.spec.images import ImageSchema
from schemas.spec.table import CsvOptions, FileSplit, HashSplit, Misplaced, RowFormatName, Schema

MAX_EXPLAINED = 200  # so many mistakes of a file are explained, and the rest are counted

Path = tuple[str | int, ...]


class Mistake(NamedTuple):
    """One mistake in a schema file: its line (from 1), the path of keys that leads to it, and what is wrong."""

    line: int
    path: Path
    message: str


FORMATS: dict[str, type[Schema] | type[ImageSchema]] = {
    **dict.fromkeys(get_args(RowFormatName), Schema),
    "image_folder": ImageSchema,
}

# The allowed values of keys that take several forms, in words. pydantic would list a mistake for each form.
_COLUMN = "a position counted from 0, or a column's name"
_RANGE = "[first, last]: two positions counted from 0, or two numbered names such as [pixel0, pixel783]"
_LENGTHS = "[shortest, longest]: the lengths of n-grams, from 1 to 10, such as [1, 2]"
_FORMS: dict[str, str] = {
    "transform": "z_score, min_max, log, none, {scale: [low, high]} with low < high, {bucketize: n} with n quantile "
    "buckets (2 or more), or {bucketize: [boundaries]} that rise strictly",
    "numeric.missing": "mean, median, or a number that takes the missing value's place",
    "column": _COLUMN,
    "columns": _RANGE,
    "resize": "{shorter: N}, or {exact: [height, width]}, in pixels",
    "channels": "measured, or {means: [r, g, b]} with `deviations: [r, g, b]` beside them if wanted, from 0 to 255",
    "drift": "a distance above which it fails, such as 0.1; {warn: 0.05}, {fail: 0.1} or both, more than 0 and at most "
    "1; or none",
    "clip": "[low, high]: two rising shares of the train split's values, from 0 to 1, such as [0.001, 0.999]; a column "
    "is clipped at its quantiles there",
    "ngrams": _LENGTHS,
    "characters": _LENGTHS,
    "by": "row, file, or a list of features such as [customer]",
}
_TYPES: dict[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list, such as [a, b]",
    "dict_type": "a mapping, such as {key: value}",
    "model_type": "a mapping, such as {key: value}",
    "model_attributes_type": "a mapping, such as {name: age, kind: numeric}",
}


def report(source: str, mistakes: Iterable[Mistake]) -> str:
    """Returns a message with one line for each mistake, in the order of the file.

    A line is `source:line: key.path[0]: message`.
    """
    return "\n".join(
        f"{source}:{m.line}: {_dotted(m.path)}: {m.message}" if m.path else f"{source}:{m.line}: {m.message}"
        for m in sorted(mistakes, key=lambda m: m.line)
    )


def explain(error: ValidationError, value: object, lines: Mapping[Path, int]) -> list[Mistake]:
    """Turns the errors of pydantic about a schema file into mistakes.

    Args:
      error: the errors.
      value: the value of the file, which pydantic refused.
      lines: the line of every path of keys in the file.
    """
    mistakes: dict[tuple[Path, str], Mistake] = {}
    refused = error.errors(include_url=False)
    errors = [(_path_in(value, tuple(e["loc"]), e["type"]), e) for e in refused[:MAX_EXPLAINED]]
    reasons = {path for path, e in errors if e["type"] == "value_error"}
    for path, details in errors:
        inner = any(len(p) > len(path) and p[: len(path)] == path for p, _ in errors)
        if details["type"] in ("too_short", "too_long") and inner:
            continue  # pydantic counts only the valid items of a list, and each invalid item is a mistake of its own
        form = _form(path, value)
        if form is not None and details["type"] != "value_error" and form[0] in reasons:
            continue  # the value has one of the allowed forms, with a mistake; that the other forms do not fit is clear
        for place, message in _explained(path, details, value):
            # A missing key has no line of its own: take the line of the nearest key above it.
            line = next(lines[place[:n]] for n in range(len(place), -1, -1) if place[:n] in lines)
            mistakes.setdefault((place, message), Mistake(line, place, message))
    more = len(refused) - len(errors)
    rest = [Mistake(max(lines.values()), (), f"and {counted(more, 'more mistakes')}")] if more else []
    return [*mistakes.values(), *rest]


def _path_in(value: object, loc: Path, kind: str) -> Path:
    """Returns the path of keys in the file to pydantic's place `loc`.

    pydantic puts names between the keys, where a value is one of several types; these names are left out.
    """
    path: Path = ()
    # `i == len(path)` means that no step was left out yet on the way to the feature, so this step is the name of its
    # kind.
    tagged = _of_rows(value)
    for i, step in enumerate(loc):
        if tagged and i == len(path) and (path == ("label",) or (len(path) == 2 and path[0] == "features")):
            continue  # the feature's kind
        in_mapping = isinstance(value, Mapping) and step in value
        in_tuple = isinstance(value, tuple) and isinstance(step, int) and step < len(value)
        if in_mapping or in_tuple:
            value = value[step]  # type: ignore[index]
        elif kind != "missing" or i < len(loc) - 1:
            continue
        path = (*path, step)
    return path


def _explained(path: Path, details: Any, value: object) -> Iterator[tuple[Path, str]]:
    """Yields (path of keys, message) for one of pydantic's errors."""
    kind, context = details["type"], details.get("ctx", {})
    form = _form(path, value)
    if kind == "value_error" and isinstance(context["error"], Misplaced):
        yield from context["error"].mistakes
    elif kind == "value_error":
        yield path, str(context["error"])
    elif form is not None and not (kind in ("missing", "extra_forbidden") and path == form[0]):
        yield form[0], _mismatch(_at(value, form[0]), form[1])
    elif kind == "extra_forbidden":
        keys = _keys(path[:-1], value)
        yield path, f"unknown key{_nearest(str(path[-1]), keys)}; allowed: {', '.join(keys)}"
    elif kind == "missing":
        yield path[:-1], f"the key {path[-1]!r} is missing"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        yield _wrong_kind(path, _at(value, path))
    else:
        content = _at(value, path)
        yield path, _mismatch(content, _allowed(kind, context, details["msg"], content))


def _mismatch(value: object, allowed: str) -> str:
    """Returns a message: what was found, what is allowed, and which of the allowed words is similar."""
    words = [word for word in allowed.split(", ") if word.isidentifier()]
    near = _nearest(value, words) if isinstance(value, str) else ""
    return f"found {_show(value)}{near}; allowed: {allowed}"


def wrong_format(value: Mapping[str, object], lines: Mapping[Path, int]) -> Mistake:
    """Returns the mistake of a schema with an unknown format, or without one."""
    allowed = ", ".join(FORMATS)
    if "format" not in value:
        return Mistake(lines[()], (), f"the key 'format' is missing; allowed: {allowed}")
    return Mistake(lines[("format",)], ("format",), _mismatch(value["format"], allowed))


def _wrong_kind(path: Path, item: object) -> tuple[Path, str]:
    """Returns the path and the message of a feature with an unknown kind, or without one."""
    kinds = list(_members(path))
    if not isinstance(item, Mapping) or "kind" not in item:
        return path, f"the key 'kind' is missing; allowed: {', '.join(kinds)}"
    return (*path, "kind"), _mismatch(item["kind"], ", ".join(kinds))


def _allowed(kind: str, context: Mapping[str, Any], otherwise: str, value: object) -> str:
    """Returns the allowed values in words, for one of pydantic's types of errors.

    Returns `otherwise` for other types of errors.
    """
    match kind:
        case "literal_error":
            words = [w.strip("' ") for w in context["expected"].replace(" or ", ", ").split(",")]
            return ", ".join(words)
        case "greater_than":
            return f"more than {context['gt']:.12g}"
        case "greater_than_equal":
            return f"{context['ge']:.12g} or more"
        case "less_than_equal":
            return f"{context['le']:.12g} or less"
        case "string_too_short" | "too_short":
            return f"at least {counted(context['min_length'], _unit(kind))}"
        case "string_too_long" | "too_long":
            return f"at most {counted(context['max_length'], _unit(kind))}"
        case "string_type" if isinstance(value, bool | float | int):
            return 'text; put it in quotes: "' + _show(value) + '"'
        case _:
            return _TYPES.get(kind, otherwise)


def _unit(kind: str) -> str:
    return "character" if kind.startswith("string") else "item"


def _form(path: Path, value: object) -> tuple[Path, str] | None:
    """Returns the key of _FORMS that `path` leads to or through, and its allowed values in words.

    Returns None if there is no such key.
    """
    if path[:1] == ("drift",):
        return path[:1], _FORMS["drift"]
    at = 3 if path[:1] == ("features",) else 2
    if len(path) < at or path[0] not in (("features", "label", "split") if _of_rows(value) else ("images",)):
        return None
    item, key = _at(value, path[: at - 1]), path[at - 1]
    if path[:2] == ("label", "transform"):  # a label has fewer transforms, and a plain list of them is clear
        return None
    for name in (key, f"{item['kind']}.{key}" if isinstance(item, Mapping) and "kind" in item else key):
        if name in _FORMS:
            return path[:at], _FORMS[str(name)]
    return None


def _of_rows(value: object) -> bool:
    """Whether a file declares a schema of rows. Assumed if the file does not say."""
    return not isinstance(value, Mapping) or FORMATS.get(value.get("format", "csv"), Schema) is Schema


def _at(value: object, path: Path) -> object:
    for step in path:
        value = value[step]  # type: ignore[index]
    return value


def _members(path: Path) -> dict[str, type[BaseModel]]:
    """Returns the classes of all kinds that may stand at a path, by the name of the kind."""
    union = get_args(Label if path == ("label",) else Feature)[0]
    return {get_args(m.model_fields["kind"].annotation)[0]: m for m in get_args(union)}


def _keys(path: Path, value: object) -> list[str]:
    """Returns the keys that the mapping at `path` can have."""
    content = _at(value, path)
    model: type[BaseModel] = FORMATS[str(_at(value, ("format",)))]
    if model is not Schema:
        for key in path:
            taken = model.model_fields[str(key)].annotation
            model = next(t for t in (taken, *get_args(taken)) if isinstance(t, type) and issubclass(t, BaseModel))
    elif path == ("csv",):
        model = CsvOptions
    elif path == ("promote",):
        model = PromoteRules
    elif path == ("split",):
        model = FileSplit if isinstance(content, Mapping) and content.get("by") == "file" else HashSplit
    elif path and isinstance(content, Mapping):
        model = _members(path)[content["kind"]]
    return sorted(model.model_fields, key="drift".__eq__)  # puts `drift`, which most kinds have, last


def _nearest(word: str, words: list[str]) -> str:
    near = difflib.get_close_matches(word, words, n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def _show(value: object) -> str:
    """Returns a value as it would stand in the file. A long value is cut."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return reprlib.repr(value)
        case tuple():
            return "[" + ", ".join(_show(v) for v in value[:4]) + (", ..." if len(value) > 4 else "") + "]"
        case Mapping():
            return "{" + ", ".join(f"{k}: {_show(v)}" for k, v in list(value.items())[:4]) + "}"
        case _:
            return str(value)


def _dotted(path: Path) -> str:
    """Returns a path of keys as text: `features[2].transform`."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
