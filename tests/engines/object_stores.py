"""Object stores on loopback: moto's S3 and an emulator of Google Cloud Storage, with a count of their requests.

Both are configured by environment variables alone, which the processes of a job inherit.
"""

import collections
import contextlib
import functools
import http.server
import importlib.util
import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import pytest

BUCKET = "bucket"
READS = ("head", "get")
CHANGES = ("write", "copy", "delete")
KINDS = ("list", *READS, *CHANGES)


class Store:
    """A store that runs: what is in it, and what it was asked for.

    `watch`, if it is set, is called before each request with its kind and the name of the object, and says whether the
    request is to be done.
    """

    scheme: str
    environment: dict[str, str]

    def __init__(self) -> None:
        self.requests: collections.Counter[str] = collections.Counter()
        self.watch: Callable[[str, str], bool] | None = None

    def path(self, name: str) -> str:
        """The URI of an object or a folder."""
        return f"{self.scheme}://{BUCKET}/{name}"

    def admits(self, kind: str, name: str) -> bool:
        """Counts a request; whether it is to be done."""
        self.requests[kind] += 1
        return self.watch is None or self.watch(kind, name)

    def objects(self) -> dict[str, bytes]:
        """All objects by name."""
        raise NotImplementedError

    def put(self, name: str, content: bytes) -> None:
        """Adds an object."""
        raise NotImplementedError

    def upload(self, folder: Path, name: str) -> str:
        """Copies a local folder into the store; returns its URI there."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return self.path(name)

    @contextlib.contextmanager
    def counting(self) -> Iterator[collections.Counter[str]]:
        """Counts the requests of the block by kind."""
        before = self.requests.copy()
        counted: collections.Counter[str] = collections.Counter()
        yield counted
        counted.update(self.requests - before)


class S3(Store):
    """moto's S3."""

    scheme = "s3"

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """The server, with a count."""
        name = unquote(environ["PATH_INFO"]).removeprefix(f"/{BUCKET}").lstrip("/")
        is_copy = "HTTP_X_AMZ_COPY_SOURCE" in environ
        if self.admits(self._kind(environ["REQUEST_METHOD"], environ.get("QUERY_STRING", ""), is_copy), name):
            return self._server(environ, start_response)
        start_response("503 Service Unavailable", [("Content-Length", "0")])
        return [b""]

    @staticmethod
    def _kind(method: str, query: str, is_copy: bool) -> str:
        if method == "GET":
            return "list" if "list-type" in query else "get"
        if method in ("PUT", "POST"):  # an upload in parts is begun and completed with POST
            return "delete" if re.match(r"delete\b", query) else "copy" if is_copy else "write"
        return method.lower()

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator["S3"]:
        """Starts the server, and stops it in the end."""
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are kept, as those of the real one

            def log(self, *args: Any) -> None:
                pass

        self._server = DomainDispatcherApplication(create_backend_app)
        self._backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._backend.create_bucket(BUCKET, "us-east-1")
        server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=Quiet)
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        with _serving(server):
            yield self
        self._backend.reset()

    def objects(self) -> dict[str, bytes]:
        return {name: key.value for name, key in list(self._backend.buckets[BUCKET].keys.items())}

    def put(self, name: str, content: bytes) -> None:
        self._backend.put_object(BUCKET, name, content)


class GoogleStorage(Store):
    """gcp-storage-emulator."""

    scheme = "gs"

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator["GoogleStorage"]:
        """Starts the server, and stops it in the end; `folder` is for a key that it accepts."""
        from gcp_storage_emulator.handlers.buckets import create_bucket
        from gcp_storage_emulator.server import RequestHandler
        from gcp_storage_emulator.storage import Storage

        store = self

        class Handler(RequestHandler):
            def parse_request(self) -> bool:
                parsed = super().parse_request()
                if parsed and self.path == "/token":
                    return self._grant()
                return parsed and self._is_admitted()

            def _grant(self) -> bool:
                """Gives an access token: Beam asks for credentials before it asks for anything else."""
                content = json.dumps({"access_token": "token", "token_type": "Bearer", "expires_in": 3600}).encode()
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                return False

            def _is_admitted(self) -> bool:
                if not self.path.startswith("/batch"):
                    return store.admits(*_google_request(self.command, self.path))
                content = self.rfile.read(int(self.headers["Content-Length"]))
                self.rfile = io.BytesIO(content)
                found = re.findall(r"^(GET|POST|PATCH|DELETE) (\S+)", content.decode(), re.MULTILINE)
                requests = [_google_request(method, re.sub(r"^https?://[^/]+", "", path)) for method, path in found]
                return False not in [store.admits(*each) for each in requests]  # all of them are counted

            def log_message(self, *args: Any) -> None:
                pass

        self._storage = Storage(use_memory_fs=True)
        create_bucket(BUCKET, self._storage)
        # Not threaded: neither is the emulator's own server, and its storage has no locks.
        server = http.server.HTTPServer(("127.0.0.1", 0), functools.partial(Handler, self._storage))
        address = f"http://127.0.0.1:{server.server_port}"
        self.environment = {
            "STORAGE_EMULATOR_HOST": address,
            "GOOGLE_APPLICATION_CREDENTIALS": str(_make_key(folder / "key.json", f"{address}/token")),
            "GOOGLE_CLOUD_PROJECT": "project",
            # The emulator has no gRPC, by which gcsfs would ask for the layout of a bucket, and retry for minutes.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }
        with _serving(server):
            yield self

    def objects(self) -> dict[str, bytes]:
        names = list(self._storage.objects.get(BUCKET, {}))
        return {name: self._storage.get_file(BUCKET, name) for name in names}

    def put(self, name: str, content: bytes) -> None:
        from google.cloud import storage

        storage.Client().bucket(BUCKET).blob(name).upload_from_string(content)


def _google_request(method: str, path: str) -> tuple[str, str]:
    """The kind of a request of the JSON API, and the object that it is about."""
    place, _, query = path.partition("?")
    name = unquote(unquote(place).partition("/o/")[2])
    if "/copyTo/" in place or "/rewriteTo/" in place:
        return "copy", unquote(place.rpartition("/o/")[2])
    if method == "GET":
        return ("list" if place.endswith("/o") else "get" if "alt=media" in query else "head"), name
    if method == "DELETE":
        return "delete", name
    named = re.search(r"[?&]name=([^&]+)", path)
    return "write", unquote(named[1]) if named else name


def _make_key(path: Path, token_uri: str) -> Path:
    """Writes the key of a service account, as Google's libraries read it."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key = {"type": "service_account", "project_id": "project", "private_key_id": "1", "private_key": private.decode()}
    path.write_text(json.dumps({**key, "client_email": "tests@project.invalid", "token_uri": token_uri}))
    return path


@contextlib.contextmanager
def _serving(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


S3_NAME, GOOGLE_NAME = "s3 (moto)", "gs (gcp-storage-emulator)"
STORES: dict[str, tuple[type, tuple[str, ...]]] = {
    S3_NAME: (S3, ("boto3", "s3fs", "moto", "flask", "flask_cors")),
    GOOGLE_NAME: (GoogleStorage, ("google.cloud.storage", "gcsfs", "gcp_storage_emulator")),
}
"""The stores by name, and the packages that each needs."""


@contextlib.contextmanager
def running_store(name: str, folder: Path) -> Iterator[Store]:
    """Starts a store, with what jobs need to find it in the environment; skips the test if it is not installed."""
    store, packages = STORES[name]
    for package in packages:  # not imported: gcsfs reads the environment when it is
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: install sbert-beam[stores]")
    with store().running(folder) as running:
        settings = {**running.environment, "SBERT_BEAM_CACHE": str(folder / "cache"), "NO_PROXY": "127.0.0.1"}
        with mock.patch.dict("os.environ", settings):
            yield running
