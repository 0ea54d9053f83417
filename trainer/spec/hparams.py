"""Parses hyper-parameters and augmentations, given as `key=value` on the command line, into frozen dataclasses.

Importing this module does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from schemas.errors import UsageError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The changes to images in TRAIN, in addition to the random crop. Evaluation and serving use the center crop only.

    Attributes:
      flip: mirror half of the images, left to right. Not for images with a fixed orientation, such as digits.
      color_jitter: by how much colors change, from 0 (not at all) to below 1.
      resized_crop: the smallest fraction of an image's area that a crop takes before it is resized to the model's size;
        None: a crop of the model's size, without resizing.

    Raises:
      ValueError: a value is out of its range.
    """

    flip: bool = True
    color_jitter: float = 0.0
    resized_crop: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.color_jitter < 1.0:
            raise ValueError(f"color_jitter={self.color_jitter}: must be 0 or more and below 1")
        if self.resized_crop is not None and not 0.0 < self.resized_crop <= 1.0:
            raise ValueError(f"resized_crop={self.resized_crop}: must be above 0 and at most 1")


def augmentation(settings: Sequence[str]) -> Augmentation:
    """Parses the `key=value` settings of `--augment`.

    Raises:
      UsageError: an unknown key, or a value out of its range.
    """
    return parse_settings(Augmentation, settings, flag="--augment", of="")


T = TypeVar("T")
_FURTHER = re.compile(r"\s+(?=\w+=)")  # other white space belongs to a value, such as a path
_BOOLS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def parse_hparams(kind: type[T], settings: Sequence[str], *, model: str) -> T:
    """Parses hyper-parameters of a model into its dataclass; see `parse_settings` for the format.

    Args:
      kind: the dataclass of the model's hyper-parameters.
      settings: `key=value` settings.
      model: the model's name, for messages.
    """
    return parse_settings(kind, settings, flag="--hparams", of=f"model {model!r}")


def parse_settings(kind: type[T], settings: Sequence[str], *, flag: str, of: str) -> T:
    """Builds a frozen dataclass from `key=value` settings; fields that are not given keep their defaults.

    The type of the field decides how a value is parsed: int, float, bool, str, `X | None` ('none' means None), or a
    tuple of one type, whose values are separated by commas or 'x' (`hidden_units=256,128`).

    Args:
      kind: a frozen dataclass whose fields all have defaults; its `__post_init__` may raise ValueError.
      settings: `key=value` settings. A string may hold several, separated as `split_settings` describes.
      flag: the command-line flag, for messages.
      of: the owner of the settings, for messages, such as `model 'dnn'`; '' if the flag is enough.

    Raises:
      UsageError: a name is unknown or given twice, or a value is invalid.
    """
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(typing.cast(Any, kind))]
    values: dict[str, Any] = {}
    for setting in split_settings(settings):
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"{flag} {setting!r}: expected key=value")
        if name not in names:
            hparams_text = describe_hparams(kind) or "none"
            owner = f"{of} has no hyper-parameter" if of else "there is no"
            has = "It has" if of else "There are"
            raise UsageError(f"{flag}: {owner} {name!r}{did_you_mean(name, names) or '.'} {has}: {hparams_text}")
        if name in values:
            raise UsageError(f"{flag}: {name} is given twice; give it once")
        try:
            values[name] = _read(hints[name], text)
        except ValueError:
            raise UsageError(f"{flag} {name}={text}: expected {_type_name(hints[name])}") from None
    try:
        return kind(**values)
    except ValueError as error:
        raise UsageError(f"{flag}{f' of {of}' if of else ''}: {error}") from None


def split_settings(settings: Sequence[str]) -> list[str]:
    """Splits strings that may each hold several `key=value` settings.

    A new setting begins at white space that is followed by `key=`. Other white space belongs to a value, such as a
    path.
    """
    return [setting for text in settings if text.strip() for setting in _FURTHER.split(text.strip())]


def describe_hparams(kind: type[Any]) -> str:
    """Returns the hyper-parameters with their defaults as a user would type them: `width=128, depth=3`."""
    return ", ".join(f"{field.name}={_typed(field.default)}" for field in dataclasses.fields(kind))


def settings_of(values: Mapping[str, Any], *, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns hyper-parameters as `key=value` settings, as a user would type them.

    Args:
      values: the hyper-parameters by name.
      without: settings that take precedence: hyper-parameters that they name are left out.
    """
    named = {setting.partition("=")[0] for setting in split_settings(without)}
    return tuple(f"{name}={_typed(value)}" for name, value in values.items() if name not in named)


def _typed(value: Any) -> str:
    """Returns a value as a user would type it."""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _read(hint: Any, text: str) -> Any:
    """Parses a value as a field's type; raises ValueError if it is not valid."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments and text.lower() == "none":
            return None
        return _read(next(a for a in arguments if a is not type(None)), text)
    if origin is tuple:
        # "256,128" or "28x28"; a single value may end in a comma.
        parts = text.removesuffix(",").split(",") if "," in text else text.split("x")
        return tuple(_read(arguments[0], part) for part in parts) if text else ()
    if hint is bool:
        if text.lower() not in _BOOLS:
            raise ValueError(text)
        return _BOOLS[text.lower()]
    if hint is not str and not text.isascii():  # int() and float() would also accept digits of other scripts
        raise ValueError(text)
    value = hint(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(text)
    return value


def _type_name(hint: Any) -> str:
    """Returns what a field's type expects, for messages, such as `an integer or none`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if a is type(None) else _type_name(a) for a in arguments)
    if origin is tuple:
        return f"{_type_name(arguments[0])}, one or more, separated by commas"
    return {int: "an integer", float: "a number", bool: "true or false", str: "text"}.get(hint, str(hint))
