"""Describes how two schemas differ, for messages that refuse one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.errors import few
from schemas.spec.forms import Declared

_CHARACTERS = 80  # the most characters of a value that are shown


def difference(first: Declared, second: Declared, *, called: tuple[str, str]) -> str:
    """Returns a description of how two schemas differ.

    Args:
      first: a schema.
      second: another schema.
      called: what the two schemas are called in the text, such as `("the model", "the data")`.

    Returns:
      Clauses such as `label: values: ["no"] in the model, ["no", "yes"] in the data`; '' if both declare the same.
    """
    these, those = (schema.model_dump(mode="json") for schema in (first, second))
    return few(list(_differences("", these, those, called)), separator="; ")


def _differences(place: str, first: Any, second: Any, called: tuple[str, str]) -> Iterator[str]:
    """Yields a clause for each difference between two values, which may be nested.

    `place`: the keys that lead to them.
    """
    if first == second:
        return
    lists = [_by_name(value) for value in (first, second)]
    if all(isinstance(value, dict) for value in lists):
        # Keys in the order of the first schema, then those that only the second one has.
        names = [*lists[0], *(name for name in lists[1] if name not in lists[0])]
        for name in names:
            inside = f"{place}{name}: "
            if name in lists[0] and name in lists[1]:
                yield from _differences(inside, lists[0][name], lists[1][name], called)
            else:
                yield f"{inside}only in {called[name not in lists[0]]}"
        return
    shown = (json.dumps(value, ensure_ascii=False) for value in (first, second))
    texts = [text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}..." for text in shown]
    if texts[0] == texts[1]:
        yield f"{place}{texts[0]} goes on otherwise"
    else:
        yield f"{place}{texts[0]} in {called[0]}, {texts[1]} in {called[1]}"


def _by_name(value: Any) -> Any:
    """Turns a list of features into a dict by name, so that features are compared with their namesakes.

    Keeps other values.
    """
    if isinstance(value, Sequence) and value and all(isinstance(item, dict) and "name" in item for item in value):
        return {item["name"]: item for item in value}
    return value
