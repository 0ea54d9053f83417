"""What features share whose ids are those of words in a vocabulary of the train split."""

from __future__ import annotations

from schemas.spec.forms import Vocabulary
from schemas.spec.kinds.base import FeatureKind, ReadAsStrings, Single, Watched
from schemas.spec.strict import Positive


class FromWords(Single, ReadAsStrings, Watched, FeatureKind):
    """A string to ids, by a vocabulary."""

    top_k: Positive | None = None
    frequency_threshold: Positive | None = None
    oov_buckets: Positive = 1

    @property
    def vocabulary(self) -> Vocabulary | None:
        return Vocabulary(self.name, self.top_k, self.frequency_threshold)

    @property
    def measures(self) -> bool:
        return self.vocabulary is not None
