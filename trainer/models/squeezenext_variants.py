"""SqueezeNext's published variants, as values. Nothing here imports TensorFlow.

Gholami et al., "SqueezeNext: Hardware-Aware Neural Network Design", arXiv 1803.10615, with the details that the paper
leaves open taken from the authors' own network definitions.
"""

from __future__ import annotations

import dataclasses

STAGE_CHANNELS = (32, 64, 128, 256)  # of each stage at width 1
STEM_CHANNELS = 64  # at every width
EMBEDDING_CHANNELS = 128  # at every width


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """One SqueezeNext.

    Attributes:
      width: factor on the channels of the stages; the stem and the last convolution keep theirs.
      units: number of units in each of the four stages.
      stem_kernel: side of the first convolution's kernel.
      groups: of the grouped convolutions: each unit's first 1x1, its 3x1 and its 1x3.
      project_first: where a unit changes the shape, the residual branch starts from the projected shortcut (v5)
        instead of from the unit's input.

    Raises:
      ValueError: there are not four stages, or the groups do not divide the channels.
    """

    width: float = 1.0
    units: tuple[int, ...] = (6, 6, 8, 1)
    stem_kernel: int = 7
    groups: int = 1
    project_first: bool = False

    def __post_init__(self) -> None:
        if len(self.units) != len(STAGE_CHANNELS) or min(self.units) < 1:
            raise ValueError(f"units={self.units}: expected {len(STAGE_CHANNELS)} numbers, each of 1 or more")
        if self.groups < 1 or self.channels[0] < 4 or any(c % (4 * self.groups) for c in self.channels):
            raise ValueError(
                f"width={self.width}, groups={self.groups}: the stages would have {self.channels} channels, and each "
                f"must be a multiple of {4 * self.groups}, so that it can be quartered and grouped"
            )

    @property
    def channels(self) -> tuple[int, ...]:
        """The output channels of each stage."""
        return tuple(int(channels * self.width) for channels in STAGE_CHANNELS)

    @property
    def depth(self) -> int:
        """The number of units, the stem and the last convolution, as the paper counts."""
        return sum(self.units) + 2


_V5 = (2, 4, 14, 1)

VARIANTS: dict[str, Variant] = {
    "1.0-SqNxt-23": Variant(),
    "1.0-G-SqNxt-23": Variant(groups=2),
    "1.0-SqNxt-23v5": Variant(units=_V5, stem_kernel=5, project_first=True),
    "2.0-SqNxt-23": Variant(width=2.0),
    "2.0-SqNxt-23v5": Variant(width=2.0, units=_V5, stem_kernel=5, project_first=True),
}
