"""`ServedModel`, under the name by which users' scripts import it; it stands in `schemas.exports.model`."""

from schemas.exports.model import ServedModel

__all__ = ["ServedModel"]
