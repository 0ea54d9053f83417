"""scikit-learn's models, as its documentation begins with them: trained on train.csv, scored on test.csv.

https://scikit-learn.org/stable/modules/ensemble.html#histogram-based-gradient-boosting,
https://scikit-learn.org/stable/auto_examples/compose/plot_column_transformer_mixed_types.html and
https://scikit-learn.org/stable/tutorial/text_analytics/working_with_text_data.html; settings are the defaults.
"""

from __future__ import annotations

import json
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

from benchmarks.measure import BenchmarkTask

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


def train(task: BenchmarkTask, *, model: str) -> dict[str, float]:
    """Trains one of `MODELS` on a set of `benchmarks.model_sets`. Returns its scores on the test split."""
    facts = json.loads(Path(task.source, "facts.json").read_text(encoding="utf-8"))
    splits = read(Path(task.source), facts["label"])
    features, labels = splits["test"]
    with threadpool_limits(1):  # of small tasks, threads that wait take more CPU than work
        fitted = MODELS[model](classes=facts["classes"], seed=task.seed).fit(*splits["train"])
        if not facts["classes"]:
            return {"loss": float(mean_squared_error(labels, fitted.predict(features)))}
        shares = fitted.predict_proba(features)
        scores = {
            "loss": log_loss(labels, shares, labels=fitted.classes_),
            "accuracy": accuracy_score(labels, fitted.classes_[shares.argmax(axis=1)]),
        }
        if len(fitted.classes_) == 2:
            scores["auc"] = roc_auc_score(labels == fitted.classes_[1], shares[:, 1])
    return {name: float(score) for name, score in scores.items()}
