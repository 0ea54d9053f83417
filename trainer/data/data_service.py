"""`--data_service`: other machines read the shards and prepare the batches (tf.data service).

The dispatcher hands out epochs, since that is what the input begins with: a worker prepares whole epochs, several
workers different ones, and what they have ready comes in any order. So each record is read once in each epoch.
"""

from __future__ import annotations

import re
import socket
import warnings

import tensorflow as tf

from schemas.errors import MillraceError

SECONDS = 10.0  # to reach the dispatcher: tf.data itself tries for ever


def prepared_by(batches: tf.data.Dataset, address: str | None) -> tf.data.Dataset:
    """The same batches, prepared by the workers of a dispatcher; None: by this process."""
    if address is None:
        return batches
    service = tf.data.experimental.service
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options", UserWarning)
        return batches.apply(service.distribute(processing_mode=service.ShardingPolicy.DYNAMIC, service=address))


def check_reachable(address: str) -> None:
    """Connects to a dispatcher, `grpc://HOST:PORT`.

    Raises:
      MillraceError: it does not answer.
    """
    host, port = re.fullmatch(r"grpc://\[?([^\]]+?)\]?:([0-9]+)", address).groups()  # type: ignore[union-attr]
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except OSError as error:
        raise MillraceError(
            f"--data_service {address}: no dispatcher answers there ({error}). Start it, and its workers, first."
        ) from None
