"""Warnings about what was found, each with what it means and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.dataset.leakage import looked_at, tells_classes
from schemas.dataset.manifest import DataWarning

_NAMED = 5  # features with a warning of their own


def warnings(found: Mapping[str, Any]) -> Iterator[DataWarning]:
    """The warnings about what was found. They name no file, so that every runner gives the same ones."""
    if "rows" in found:
        yield from _rows(found["rows"])
    if "keys" in found:
        yield from _keys(found["keys"])
    if "images" in found:
        yield from _images(found["images"])
    if "label" in found:
        yield from _label(found["label"])


def _rows(rows: Mapping[str, Any]) -> Iterator[DataWarning]:
    repeated = rows["repeated"]["records"] / max(1, rows["repeated"]["of"])
    for each in rows["equal"]:
        advice = "Remove the copies, or split by what they share."
        if repeated > each["records"] / each["of"] / 2:
            advice = (
                f"Rows repeat within train, too ({_percent(repeated)}): few or coarse features may be the reason. Else "
                "remove the copies."
            )
        yield DataWarning(
            feature="",
            code="equal_rows",
            message=f"leakage: {_share(each, 'rows')} have the features and the label of a row of {each['splits'][0]}"
            f"{_sampled(rows, 'rows')}. {advice}",
        )


def _keys(keys: Mapping[str, Any]) -> Iterator[DataWarning]:
    for each in keys["in_two_splits"]:
        yield DataWarning(
            feature="",
            code="key_in_two_splits",
            message=f"leakage: {_share(each, 'rows')} have the key of a row of {each['splits'][0]}"
            f"{_sampled(keys, 'rows')}. Rows of one key belong in one split: split by the key.",
        )


def _images(images: Mapping[str, Any]) -> Iterator[DataWarning]:
    for each in images["equal"]:
        yield DataWarning(
            feature="",
            code="equal_images",
            message=f"leakage: {_share(each, 'images')} are equal to an image of {each['splits'][0]}"
            f"{_sampled(images, 'images')}. Remove the copies, or split by content.",
        )
    for each in images["near"]:
        yield DataWarning(
            feature="",
            code="near_equal_images",
            message=f"leakage: {_share(each, 'images')} look nearly the same as an image of {each['splits'][0]}"
            f"{_sampled(images, 'images')}. The report shows some: remove copies.",
        )
    count = images["two_labels"]["images"]
    if count:
        verb = "image occurs" if count == 1 else "images occur"
        yield DataWarning(
            feature="",
            code="two_labels",
            message=f"labels: {count:,} {verb} with more than one label{_sampled(images, 'images')}. Decide on one.",
        )


def _label(label: Mapping[str, Any]) -> Iterator[DataWarning]:
    leaks = [each for each in label["features"] if each["leaks"]]
    for each in leaks[:_NAMED]:
        name = each["name"]
        told = tells_classes(each, label)
        if told:
            first = each["tells"][0]
            of = f"{first['class']!r} ({_percent(first['share'])} of the rows)"
            how = f"alone it tells the class {of} of {label['name']} from the rest with an AUC of {first['auc']:.4f}"
            how += f", and {len(told) - 1:,} more" if len(told) > 1 else ""
        elif "auc" in each:
            how = f"alone it predicts {label['name']} with an AUC of {each['auc']:.4f}"
        else:
            how = f"its correlation with {label['name']} is {each['correlation']:.5f}"
        yield DataWarning(
            feature=name,
            code="tells_label",
            message=f"{name}: {how} in the train split. If it is not known when a prediction is made, declare it "
            "`kind: ignore`.",
        )
    more = label.get("leaks", 0) - len(leaks[:_NAMED])
    if more > 0:
        yield DataWarning(
            feature="",
            code="tells_label",
            message=f"leakage: {more:,} more features predict {label['name']}, or a class of it, almost alone; see "
            "leakage.json.",
        )


def _share(each: Mapping[str, Any], records: str) -> str:
    split = each["splits"][1]
    return (
        f"{each['records']:,} of {each['of']:,} {records} of {split} ({_percent(each['records'] / max(1, each['of']))})"
    )


def _sampled(found: Mapping[str, Any], records: str) -> str:
    return "" if found["share"] == 1 else f", among {looked_at(found, records)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 or not share else "< 0.1 %"
