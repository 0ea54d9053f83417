"""The reason that the job and predictions give for a row whose transform gives a number that is not finite."""

from __future__ import annotations

from schemas.spec.table import Schema

NOT_FINITE = "not_finite"  # the reason code


def hints_of(schema: Schema) -> dict[str, str]:
    """What may make a value that is not finite, by feature."""
    return {feature.name: feature.not_finite_hint for feature in schema.features if feature.not_finite_hint}
