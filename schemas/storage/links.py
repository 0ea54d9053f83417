"""Finds symbolic links inside dataset directories and exports, where only files and folders belong.

Jobs and exports never write links. The target of a link may be outside the folder that is checked, copied and removed,
so readers refuse every link. The folder itself may be reached through links.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from schemas.errors import MillraceError
from schemas.storage.paths import is_local, join


def links_to(root: str, names: Iterable[str]) -> list[str]:
    """The files, and folders on their paths, that are links: relative to `root`, sorted. On GCS there are none."""
    if not is_local(root):
        return []
    below = set(names)
    todo = below
    while todo:
        todo = {os.path.dirname(name) for name in todo} - below - {""}
        below |= todo
    return sorted(name for name in below if os.path.islink(join(root, name)))


def links_in(folder: str) -> list[str]:
    """All links below a folder, relative to it, sorted; none of them is followed. On GCS there are none."""
    if not is_local(folder):
        return []
    found, waiting = [], [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:  # finds links without a stat of each entry
                for entry in entries:
                    if entry.is_symlink():
                        found.append(os.path.relpath(entry.path, folder))
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:  # not a readable folder: its reader reports that
            continue
    return sorted(found)


def links_of(data_dir: str, run: str, names: Iterable[str]) -> list[str]:
    """All links in a run's folder, and in place of a file or folder that a manifest names, relative to `data_dir`."""
    found = {join(run, name) for name in links_in(join(data_dir, run))}
    elsewhere = [name for name in names if not name.startswith(f"{run}/")]
    return sorted(found.union(links_to(data_dir, [run, *elsewhere])))


def refuse_links(root: str, names: Iterable[str], *, advice: str = "") -> None:
    """Refuses links in place of files, and of folders on their paths.

    Raises:
      MillraceError: there is one; the message ends with `advice`.
    """
    for link in links_to(root, names):
        full = join(root, link)
        raise MillraceError(f"{full}: {link_fault(full)}{advice}.")


def link_fault(path: str) -> str:
    """The message about a link, without the link's own path."""
    try:
        target = os.readlink(path)
    except OSError:  # replaced since
        target = "another place"
    return f"is a link to {target[:200]}; expected a file or folder. Replace the link with the original"
