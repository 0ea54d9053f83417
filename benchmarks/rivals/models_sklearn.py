"""scikit-learn's models, as its documentation begins with them: trained on train.csv, scored on test.csv.

https://scikit-learn.org/stable/modules/ensemble.html#histogram-based-gradient-boosting,
https://scikit-learn.org/stable/auto_examples/compose/plot_column_transformer_mixed_types.html and
https://scikit-learn.org/stable/tutorial/text_analytics/working_with_text_data.html; settings are the defaults.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.compose import TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, roc_auc_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

STEPS = 1000  # of logistic regression, whose 100 do not converge


def tf_idf(*, classes: bool, seed: int) -> Any:
    """Words and pairs of neighbours of the only column."""
    only = make_column_transformer((TfidfVectorizer(ngram_range=(1, 2)), 0))
    return make_pipeline(only, LogisticRegression(max_iter=STEPS) if classes else Ridge())


def trees(*, classes: bool, seed: int) -> Any:
    """Histogram gradient boosting, which takes missing numbers and categories as they are."""
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return kind(random_state=seed)


def linear(*, classes: bool, seed: int) -> Any:
    """Ridge regression, or logistic regression."""
    return make_pipeline(_scaled(), LogisticRegression(max_iter=STEPS) if classes else Ridge())


def network(*, classes: bool, seed: int) -> Any:
    """A multi-layer perceptron; it learns numbers in standard deviations."""
    if classes:
        return make_pipeline(_scaled(), MLPClassifier(random_state=seed))
    scaled = TransformedTargetRegressor(MLPRegressor(random_state=seed), transformer=StandardScaler())
    return make_pipeline(_scaled(), scaled)


def _scaled() -> Any:
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    of_words = make_column_selector(dtype_include="category")
    return make_column_transformer((numbers, make_column_selector(dtype_exclude="category")), (words, of_words))


MODELS = {function.__name__: function for function in (trees, linear, network, tf_idf)}


def read(folder: Path, label: str) -> dict[str, tuple[pd.DataFrame, pd.Series]]:
    """The features and labels of both splits; words are categories, which are those of the train split."""
    frames = {split: pd.read_csv(folder / f"{split}.csv") for split in ("train", "test")}
    labels = {split: frame.pop(label) for split, frame in frames.items()}
    words = [] if frames["train"].shape[1] == 1 else frames["train"].select_dtypes(exclude="number").columns
    for name in words:
        kind = pd.CategoricalDtype(sorted(frames["train"][name].dropna().unique()))
        for frame in frames.values():
            frame[name] = frame[name].astype(kind)
    return {split: (frame, labels[split]) for split, frame in frames.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Trains a model, and writes its scores on the test split as JSON. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals.models_sklearn", description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path, help="of train.csv and test.csv")
    parser.add_argument("--label", required=True)
    parser.add_argument("--classes", action="store_true", help="the label is a class, and no number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scores", type=Path, required=True, help="the file to write")
    options = parser.parse_args(argv)
    splits = read(options.folder, options.label)
    features, labels = splits["test"]
    with threadpool_limits(1):  # of small tasks, threads that wait take more CPU than work
        model = MODELS[options.model](classes=options.classes, seed=options.seed).fit(*splits["train"])
        if options.classes:
            shares = model.predict_proba(features)
            scores = {"loss": log_loss(labels, shares, labels=model.classes_)}
            scores["accuracy"] = accuracy_score(labels, model.classes_[shares.argmax(axis=1)])
            if len(model.classes_) == 2:
                scores["auc"] = roc_auc_score(labels == model.classes_[1], shares[:, 1])
        else:
            scores = {"loss": mean_squared_error(labels, model.predict(features))}
    options.scores.write_text(json.dumps({name: float(score) for name, score in scores.items()}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
