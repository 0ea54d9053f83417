"""Beam's start without what it does over and over: a fifth of a small job's processor time, imports aside.

Building and running a pipeline of a hundred transforms, Beam parses its options' arguments some seven hundred times and
inspects some twenty thousand methods' signatures, of which about 150 differ.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core

Signature = tuple[list[str], list[Any]]  # the arguments' names, and the defaults of those that have one


class Options(PipelineOptions):
    """Beam's options, which make each view of themselves once. Views share what is set in any of them, as Beam's do."""

    def view_as(self, cls: type[Any]) -> Any:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        """Without the views: a copy makes its own."""
        return {name: value for name, value in super().__getstate__().items() if name != "_views"}


def remember_signatures() -> None:
    """From now on, Beam inspects each function once in this process. Does nothing the second time.

    This replaces a function inside Beam, for want of another way: it inspects all methods of every DoFn, most of them
    tf.Transform's, whenever it asks whether one keeps state.
    """
    if not hasattr(core.get_function_args_defaults, "inspect"):
        core.get_function_args_defaults = remembering(core.get_function_args_defaults)


def remembering(inspect: Callable[[Any], Signature]) -> Callable[[Any], Signature]:
    """`inspect`, asked once for all methods that are bound from the same function."""
    seen: weakref.WeakKeyDictionary[Callable[..., Any], Signature] = weakref.WeakKeyDictionary()

    def recall(f: Any) -> Signature:
        if not isinstance(f, types.MethodType) or not isinstance(f.__func__, types.FunctionType):
            return inspect(f)
        if f.__func__ not in seen:
            seen[f.__func__] = inspect(f)
        args, defaults = seen[f.__func__]
        return list(args), list(defaults)

    recall.inspect = inspect  # type: ignore[attr-defined]
    return recall
