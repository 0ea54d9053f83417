"""The manifest's entries for inputs, from their accounts."""

from __future__ import annotations

from collections.abc import Sequence

from beam_jobs.core.accounting import READ
from beam_jobs.output.accounts import InputAccount
from schemas.dataset.input_files import InputPart
from schemas.dataset.manifest import Input


def input_part(accounts: Sequence[InputAccount]) -> InputPart:
    """The entries of some inputs, by path."""
    accounts = sorted(accounts, key=lambda account: account.file.path)
    described = [account.described for account in accounts]
    headers = sorted({header for _, header in described if header is not None})
    places = {header: place for place, header in enumerate(headers)}
    return InputPart(
        inputs=tuple(
            Input(
                path=account.file.path,
                bytes=account.file.bytes,
                version=account.file.version,
                read=account.total(READ),
                written=sum(account.written.values()),
                rejected=account.rejected,
                encoding=encoding,
                header=None if header is None else places[header],
                digest=account.digest,
            )
            for account, (encoding, header) in zip(accounts, described, strict=True)
        ),
        headers=tuple(headers),
        counts=tuple(count for account in accounts for count in account.for_manifest()),
    )
