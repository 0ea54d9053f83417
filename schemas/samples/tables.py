"""Generates synthetic CSV files in the format of the shipped datasets. Metrics on these files mean nothing.

    python -m schemas.samples covertype covertype.csv --rows 20000 --seed 1

Each file has a signal that can be learned, so that a trained model is clearly better than always predicting the most
frequent class. Rows are generated and written in blocks, so that memory does not grow with the number of rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from schemas import storage
from schemas.errors import UsageError

BLOCK = 8192  # the number of rows that are generated at once

# Per Covertype class 1 to 7: its share, elevation (m), slope (degrees), weights of the wilderness areas, and the first
# of the twelve neighbouring soil types that it is found on.
_SHARES = (0.36, 0.49, 0.06, 0.01, 0.02, 0.03, 0.03)
_ELEVATION = (3130, 2900, 2390, 2220, 2780, 2420, 3370)
_SLOPE = (13, 13, 21, 19, 17, 19, 14)
_AREAS = (
    (0.50, 0.09, 0.41, 0.00),
    (0.52, 0.03, 0.44, 0.01),
    (0.00, 0.00, 0.40, 0.60),
    (0.00, 0.00, 0.00, 1.00),
    (0.40, 0.00, 0.60, 0.00),
    (0.00, 0.00, 0.43, 0.57),
    (0.24, 0.11, 0.65, 0.00),
)
_FIRST_SOIL = (20, 16, 0, 2, 12, 4, 28)
# With a drift of 1, each class is found so many metres lower, and on soils with a number so much higher.
_LOWER, _FURTHER = 230, 6

_EDUCATION = ("HS-grad", "Some-college", "Bachelors", "Masters", "Assoc-voc", "11th", "Doctorate")
_EDUCATION_NUM = (9, 10, 13, 14, 11, 7, 16)
_WORKCLASS = ("Private", "Self-emp-not-inc", "Local-gov", "State-gov", "?")
_MARITAL = ("Married-civ-spouse", "Never-married", "Divorced", "Widowed")
_OCCUPATION = ("Prof-specialty", "Craft-repair", "Exec-managerial", "Adm-clerical", "Sales", "Other-service", "?")
_RELATIONSHIP = ("Husband", "Wife", "Not-in-family", "Own-child", "Unmarried")
_RACE = ("White", "Black", "Asian-Pac-Islander", "Other")
_COUNTRY = ("United-States", "Mexico", "Philippines", "Germany", "?")
_SURNAMES = ("Allen", "Becker", "Connolly", "Dahl", "Evans", "Fox", "Goodwin", "Hansen", "Ilett", "Jonsson", "O'Brien")

CENSUS_HEADER = (
    "age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,"
    "capital_gain,capital_loss,hours_per_week,native_country,ltgt50k"
)
MNIST_HEADER = ",".join(["label", *(f"pixel{i}" for i in range(784))])
TITANIC_HEADER = "pclass,survived,name,sex,age,sibsp,parch,ticket,fare,cabin,embarked,boat,body,home.dest"


def _draw(rng: np.random.Generator, weights: NDArray[np.float64]) -> NDArray[np.intp]:
    """Draws an index in [0, k) for each row of weights `[rows, k]`, with probabilities proportional to the weights."""
    # Counts the cumulative sums that a uniform random number has reached: this is the index of its weight.
    sums = np.cumsum(weights, axis=1)
    return (rng.random((len(weights), 1)) * sums[:, -1:] >= sums).sum(axis=1)


def covertype_rows(rows: int, rng: np.random.Generator, drift: float = 0.0) -> NDArray[np.int64]:
    """Draws rows of Covertype: int64 `[rows, 55]`.

    The columns are 10 about the terrain, 4 and 40 groups of 0/1 columns with one 1 each (wilderness area and soil
    type), and the class from 1 to 7.

    Args:
      rows: the number of rows.
      rng: the random generator.
      drift: how far the classes have moved, to lower places and other soils, from 0 to 1. At 1, a model that was
        trained without drift is wrong on half of the rows.
    """
    kind = rng.choice(7, size=rows, p=_SHARES)

    def around(center: NDArray[np.float64], spread: float, low: float, high: float) -> NDArray[np.float64]:
        return np.clip(rng.normal(center, spread), low, high)

    wide = np.full(rows, 1.0)
    elevation = around(np.take(_ELEVATION, kind) - _LOWER * drift, 110, 1859, 3858)
    slope = around(np.take(_SLOPE, kind).astype(float), 7, 0, 66)
    water = rng.exponential(270, rows).clip(0, 1397)
    terrain = (
        elevation,
        rng.uniform(0, 360, rows),
        slope,
        water,
        around(0.17 * water, 30, -173, 601),
        around((elevation - 1800) * 2.1, 1200, 0, 7117),
        around(224 - slope, 22, 0, 254),
        around(wide * 223, 20, 0, 254),
        around(118 + slope * 1.7, 30, 0, 254),
        around((elevation - 1800) * 1.7, 1000, 0, 7173),
    )
    out = np.zeros((rows, 55), np.int64)
    out[:, :10] = np.rint(np.stack(terrain, axis=1))
    row_numbers = np.arange(rows)
    out[row_numbers, 10 + _draw(rng, np.take(np.array(_AREAS), kind, axis=0))] = 1
    soil = np.take(_FIRST_SOIL, kind) + np.minimum(rng.geometric(0.3, rows) - 1, 11)
    soil = (soil + round(_FURTHER * drift)) % 40
    # One row in ten is on a random soil.
    out[row_numbers, 14 + np.where(rng.random(rows) < 0.1, rng.integers(0, 40, rows), soil)] = 1
    out[:, 54] = kind + 1
    return out


def mnist_csv_rows(rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draws rows of MNIST: int64 `[rows, 785]`, the digit and 28 x 28 grey values.

    Each image shows a blot on a circle. Its angle tells the digit.
    """
    digit = rng.integers(0, 10, rows)
    # The digit sets the angle at which the blot lies on a circle around the centre.
    turn = 2 * np.pi * digit / 10
    y = 13.5 + 8 * np.sin(turn) + rng.normal(0, 1, rows)
    x = 13.5 + 8 * np.cos(turn) + rng.normal(0, 1, rows)
    grid = np.arange(28)
    distance = (grid[None, :, None] - y[:, None, None]) ** 2 + (grid[None, None, :] - x[:, None, None]) ** 2
    grey = np.rint(255 * np.exp(-distance / 12)).astype(np.int64).reshape(rows, 784)
    return np.concatenate([digit[:, None], np.where(grey < 8, 0, grey)], axis=1)


def census_rows(rows: int, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Draws rows of Census: 15 texts in the order of CENSUS_HEADER.

    '?' means missing. The label is '<=50K' or '>50K'.
    """
    education = rng.integers(0, len(_EDUCATION), rows)
    age = rng.integers(17, 91, rows)
    married = rng.random(rows) < 0.5
    man = rng.random(rows) < 0.6
    hours = np.clip(rng.normal(40, 12, rows), 1, 99).astype(int)
    gain = np.where(rng.random(rows) < 0.08, rng.integers(100, 20_000, rows), 0)
    score = 0.5 * (np.take(_EDUCATION_NUM, education) - 11) + 2.0 * married + (hours - 40) / 20 + gain / 4000 - 1.5
    rich = rng.random(rows) < 1 / (1 + np.exp(-2 * score))

    def pick(words: tuple[str, ...]) -> NDArray[np.str_]:
        return np.take(words, rng.integers(0, len(words), rows))

    columns = (
        age.astype(str),
        pick(_WORKCLASS),
        rng.integers(12_000, 1_500_000, rows).astype(str),
        np.take(_EDUCATION, education),
        np.take(_EDUCATION_NUM, education).astype(str),
        np.where(married, _MARITAL[0], pick(_MARITAL[1:])),
        pick(_OCCUPATION),
        np.where(married, np.where(man, "Husband", "Wife"), pick(_RELATIONSHIP[2:])),
        pick(_RACE),
        np.where(man, "Male", "Female"),
        gain.astype(str),
        np.where((gain == 0) & (rng.random(rows) < 0.05), rng.integers(100, 4400, rows), 0).astype(str),
        hours.astype(str),
        pick(_COUNTRY),
        np.where(rich, ">50K", "<=50K"),
    )
    return list(zip(*(c.tolist() for c in columns), strict=True))


def titanic_rows(rows: int, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Draws rows of Titanic: 14 texts in the order of TITANIC_HEADER.

    Names and places contain commas. '?' means missing.
    """
    out: list[tuple[str, ...]] = []
    for i in range(rows):
        pclass, woman = int(rng.choice([1, 2, 3], p=[0.25, 0.2, 0.55])), rng.random() < 0.36
        saved = rng.random() < (0.92 if woman else 0.25) - 0.12 * (pclass - 1)
        title = "Miss." if woman else "Mr."
        out.append(
            (
                str(pclass),
                str(int(saved)),
                f'{rng.choice(_SURNAMES)}, {title} {"Ann" if woman else "John"} "No. {i}"',
                "female" if woman else "male",
                "?" if rng.random() < 0.2 else f"{rng.uniform(1, 75):.4g}",
                str(rng.integers(0, 4)),
                str(rng.integers(0, 3)),
                f"PC {rng.integers(1000, 1000 + rows)}",
                "?" if rng.random() < 0.01 else f"{rng.gamma(2, 60 / pclass):.4f}",
                f"{rng.choice(list('ABCD'))}{rng.integers(1, 99)}" if pclass == 1 else "?",
                str(rng.choice(["S", "C", "Q", "?"], p=[0.7, 0.2, 0.09, 0.01])),
                str(rng.integers(1, 16)) if saved else "?",
                "?" if saved or rng.random() < 0.8 else str(rng.integers(1, 328)),
                "St Louis, MO" if rng.random() < 0.5 else "?",
            )
        )
    return out


def _integers(make: Callable[..., NDArray[np.int64]]) -> Callable[..., bytes]:
    """Returns a function that draws a block of integer rows with `make`, and returns them as CSV text."""

    def text(rows: int, rng: np.random.Generator, **settings: float) -> bytes:
        import pyarrow as pa
        from pyarrow import csv as pa_csv

        values = make(rows, rng, **settings)
        out = pa.BufferOutputStream()
        table = pa.table([pa.array(column) for column in values.T], names=[str(i) for i in range(values.shape[1])])
        pa_csv.write_csv(table, out, pa_csv.WriteOptions(include_header=False))
        return out.getvalue().to_pybytes()

    return text


def _census_text(rows: int, rng: np.random.Generator) -> bytes:
    return "".join(", ".join(row) + "\n" for row in census_rows(rows, rng)).encode()


def _titanic_text(rows: int, rng: np.random.Generator) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(titanic_rows(rows, rng))
    return out.getvalue().encode()


# By name of the sample: the header line ('' for no header), and the function that generates a block of rows.
SAMPLES: dict[str, tuple[str, Callable[..., bytes]]] = {
    "covertype": ("", _integers(covertype_rows)),
    "census": (CENSUS_HEADER, _census_text),
    "mnist_csv": (MNIST_HEADER, _integers(mnist_csv_rows)),
    "titanic": (TITANIC_HEADER, _titanic_text),
}


DRIFTS = ("covertype",)  # the samples with an option `drift`


def sample_blocks(name: str, *, rows: int, seed: int, drift: float = 0.0) -> Iterator[bytes]:
    """Yields the bytes of a sample file, block by block: the header, if there is one, then the rows.

    Args:
      name: the name of the sample.
      rows: the number of rows.
      seed: the random seed. The same seed gives the same file.
      drift: how far the classes have moved, from 0 to 1; other values than 0 only for the samples in `DRIFTS`.
    """
    header, make = SAMPLES[name]
    settings = {"drift": drift} if drift else {}
    if header:
        yield header.encode() + b"\n"
    for i, start in enumerate(range(0, rows, BLOCK)):
        yield make(min(BLOCK, rows - start), np.random.default_rng([seed, i]), **settings)


def write_sample(name: str, path: str, *, rows: int, seed: int, drift: float = 0.0) -> None:
    """Writes a sample to a file, local or gs://. The file gets its name when it is complete.

    Args:
      name: the name of the sample.
      path: the file.
      rows: the number of rows.
      seed: the random seed.
      drift: how far the classes have moved, from 0 to 1 (see `sample_blocks`).

    Raises:
      UsageError: the file cannot be written.
    """
    storage.check_scheme(path)
    storage.check_output(path)
    try:
        with storage.NewFile(path) as file:
            file.writelines(sample_blocks(name, rows=rows, seed=seed, drift=drift))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
