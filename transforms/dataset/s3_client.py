"""One boto3 client for all requests of Beam's S3 file system in a process.

Beam makes a session and a client for every request, which takes 0.1 to 0.4 seconds of a core and a new connection. A
client of boto3 may be used by many threads, so that one is enough.
"""

import types
from typing import Any

from apache_beam.io.aws.clients.s3 import boto3_client

from sbert_core.process_cache import process_cache


class _Session:
    """Stands for a session of boto3 in Beam's S3 client."""

    def client(self, **settings: Any) -> Any:
        return _client(**settings)


@process_cache(max_entries=8)
def _client(**settings: Any) -> Any:
    import boto3  # an extra: see `aws` in setup.py

    return boto3.session.Session().client(**settings)


def share_client() -> None:
    """Makes Beam's S3 file system use one client for each set of options."""
    if boto3_client.boto3 is not None:  # it is installed
        boto3_client.boto3 = types.SimpleNamespace(session=types.SimpleNamespace(Session=_Session))
