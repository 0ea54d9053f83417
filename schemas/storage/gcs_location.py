"""Where a bucket lies, and whether a region reads it without leaving that place."""

from __future__ import annotations

import dataclasses

from schemas.errors import MillraceError, UsageError
from schemas.storage.gcs import PREFIX
from schemas.storage.gcs_client import client
from schemas.storage.paths import wrap_errors

# The multi-regions, by how the names of their regions begin, and the predefined pairs of regions.
_MULTI = {"us": ("us-",), "eu": ("europe-",), "asia": ("asia-",)}
_PAIRS = {
    "asia1": ("asia-northeast1", "asia-northeast2"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "nam4": ("us-central1", "us-east1"),
}


@dataclasses.dataclass(frozen=True)
class Location:
    """A bucket's location as Google names it, and its regions where it was given a pair of them by name."""

    name: str
    regions: tuple[str, ...] = ()

    def serves(self, region: str) -> bool:
        """Whether a machine in `region` reads the bucket without the data leaving a region or multi-region.

        An unknown code of several regions counts as serving, since nothing is known against it.
        """
        name, region = self.name.lower(), region.lower()
        if self.regions:
            return region in {each.lower() for each in self.regions}
        if name in _MULTI:
            return region.startswith(_MULTI[name])
        return region in _PAIRS.get(name, (name,)) if "-" in name or name in _PAIRS else True


def location_of(path: str) -> Location | None:
    """The location of the bucket of a gs:// path; None if these credentials may not see it.

    Raises:
      UsageError: there is no such bucket.
      MillraceError: the server cannot be asked.
    """
    bucket = path[len(PREFIX) :].partition("/")[0]
    try:
        with wrap_errors(f"{PREFIX}{bucket}"):
            found = client().get_bucket(bucket)
    except MillraceError as error:
        kind = type(error.__cause__).__name__
        if kind == "Forbidden":  # roles/storage.objectUser does not include storage.buckets.get
            return None
        if kind == "NotFound":
            raise UsageError(f"{PREFIX}{bucket}: no such bucket") from error
        raise
    return Location(found.location or "", tuple(found.data_locations or ()))
