"""Waits for newer exports: told by the file system on local disk, by listing the folder on other stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from schemas import storage
from schemas.errors import MillraceError
from trainer.serving.versions import Versions

log = logging.getLogger(__name__)
SETTLE = 200  # milliseconds without a change, after which a folder is looked at
AGAIN = 1.0  # seconds after a sign, until the folder is looked at once more
LISTED = 60.0  # seconds after which a local folder is listed even so: network file systems tell of no changes


class Watcher:
    """Has newer exports loaded and put into service, one at a time."""

    def __init__(self, versions: Versions, *, poll_secs: float) -> None:
        self._versions = versions
        self._poll_secs = poll_secs
        self._one = asyncio.Lock()

    async def refresh(self) -> None:
        """Looks for a newer export, and puts it into service; until there is none."""
        loop = asyncio.get_running_loop()
        passed: set[str] = set()  # each is tried once, also those that the next look will try again
        async with self._one:
            while True:
                try:
                    found = await loop.run_in_executor(None, self._versions.load_newer, passed)
                except MillraceError as error:
                    log.error("the exports cannot be listed: %s", error)
                    return
                except Exception:  # else no newer export would ever be looked for
                    log.exception("the exports cannot be listed")
                    return
                if found is None:
                    return
                if isinstance(found, tuple):
                    passed.add(found[0])
                self._versions.take(found)

    async def run(self) -> None:
        """Refreshes for ever, at each sign of a change."""
        if self._versions.source.single:
            return
        await self.refresh()
        async for _ in self._signs():
            await self.refresh()
            await asyncio.sleep(AGAIN)  # for a change that came while the signs were read, and gave none
            await self.refresh()

    async def _signs(self) -> AsyncIterator[None]:
        folder = self._versions.source.folder
        if storage.is_local(folder):
            from watchfiles import awatch

            settings: Any = {"step": SETTLE, "rust_timeout": int(LISTED * 1000), "yield_on_timeout": True}
            try:
                async for _ in awatch(folder, watch_filter=None, **settings):
                    yield
            except (OSError, RuntimeError) as error:
                log.warning("%s cannot be watched (%s); it is listed every %g s", folder, error, self._poll_secs)
        while True:
            await asyncio.sleep(self._poll_secs)
            yield
