"""Hyper-parameters as typed on a command line."""

from __future__ import annotations

import dataclasses

import pytest

from schemas.errors import UsageError
from trainer.models import BUILT_IN, DnnHparams
from trainer.spec.hparams import describe_hparams, parse_hparams


@dataclasses.dataclass(frozen=True)
class Every:
    """A field of each type."""

    count: int = 1
    rate: float = 0.5
    on: bool = False
    name: str = "adam"
    units: tuple[int, ...] = (4, 2)
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.rate > 1:
            raise ValueError("rate must be 1 or less")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], Every()),
        (["count=3"], Every(count=3)),
        (["rate=1e-3"], Every(rate=0.001)),
        (["on=true"], Every(on=True)),
        (["on=0"], Every(on=False)),
        (["name=sgd"], Every(name="sgd")),
        (["name=a=b"], Every(name="a=b")),
        (["units=8,4,2"], Every(units=(8, 4, 2))),
        (["units=8x4"], Every(units=(8, 4))),
        (["units=8"], Every(units=(8,))),
        (["limit=7"], Every(limit=7)),
        (["limit=none"], Every(limit=None)),
        (["count=3 rate=0.1", "on=yes"], Every(count=3, rate=0.1, on=True)),
        (["units=8,4,"], Every(units=(8, 4))),
    ],
)
def test_reads_values_by_type(settings, expected):
    assert parse_hparams(Every, settings, model="m") == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("cuont=1", "model 'm' has no hyper-parameter 'cuont'. Did you mean count? It has: count=1, rate=0.5"),
        ("zzz=1", "model 'm' has no hyper-parameter 'zzz'. It has: count=1"),
        ("count", "'count': expected key=value"),
        ("count=1.5", "count=1.5: expected an integer"),
        ("count=\u0663", "count=\u0663: expected an integer"),
        ("rate=fast", "rate=fast: expected a number"),
        ("on=maybe", "on=maybe: expected true or false"),
        ("units=4,a", "units=4,a: expected an integer, one or more, separated by commas"),
        ("units=4,x", "units=4,x: expected an integer, one or more, separated by commas"),
        ("units=8,,4", "units=8,,4: expected an integer"),
        ("count=3 count=4", "count is given twice"),
        ("rate=nan", "rate=nan: expected a number"),
        ("limit=x", "limit=x: expected an integer or none"),
        ("rate=2", "rate must be 1 or less"),
    ],
)
def test_refuses(setting, message):
    with pytest.raises(UsageError) as refused:
        parse_hparams(Every, [setting], model="m")
    assert message in str(refused.value)


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_described_can_be_typed(name):
    kind = BUILT_IN[name].hparams
    assert parse_hparams(kind, describe_hparams(kind).split(", "), model=name) == kind()


@pytest.mark.parametrize("setting", ["hidden_units=", "hidden_units=0", "dropout=1", "learning_rate=-1"])
def test_models_check_their_own(setting):
    with pytest.raises(UsageError, match="hparams of model 'dnn'"):
        parse_hparams(DnnHparams, [setting], model="dnn")
