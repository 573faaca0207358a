"""What a worker's container does before it works: fetches what the job staged, installs it, starts the worker.

Beam's container images do it with a program in Go; a pool of worker processes needs the same without a container.
A file `trap` beside the pool makes a worker stop in the middle of a job, for a test to kill it there.
"""

import argparse
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import grpc
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format, text_format

SECONDS = 300  # a machine may be busy
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def provision(endpoint: str, metadata: tuple) -> beam_provision_api_pb2.ProvisionInfo:
    """Asks the engine what this worker is to know."""
    service = beam_provision_api_pb2_grpc.ProvisionServiceStub(grpc.insecure_channel(endpoint, _UNLIMITED))
    request = beam_provision_api_pb2.GetProvisionInfoRequest()
    return service.GetProvisionInfo(request, metadata=metadata, wait_for_ready=True, timeout=SECONDS).info


def fetch(info: beam_provision_api_pb2.ProvisionInfo, endpoint: str, metadata: tuple, folder: Path) -> list[Path]:
    """Downloads the staged files; returns the packages among them."""
    service = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(grpc.insecure_channel(endpoint, _UNLIMITED))
    request = beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=info.dependencies)
    paths = []
    for artifact in service.ResolveArtifacts(request, metadata=metadata, timeout=SECONDS).replacements:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload)
        paths.append(folder / Path(role.staged_name).name)
        wanted = beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact)
        with paths[-1].open("wb") as file:
            file.writelines(piece.data for piece in service.GetArtifact(wanted, metadata=metadata, timeout=SECONDS))
    return [path for path in paths if path.suffix == ".whl"]


def install(wheels: list[Path], folder: Path) -> Path:
    """Installs packages below `folder`, once for all workers; what they need is there already, as in an image."""
    digest = hashlib.sha256(b"".join(wheel.read_bytes() for wheel in wheels)).hexdigest()
    site = folder / f"site-{digest[:16]}"
    if not site.exists():
        unfinished = tempfile.mkdtemp(dir=folder)
        quiet = ["--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]
        command = [sys.executable, "-S", "-P", "-m", "pip", "install", *quiet, "--no-index", "--no-deps", "--target"]
        subprocess.run([*command, unfinished, *wheels], check=True)
        with contextlib.suppress(OSError):  # another worker was faster
            Path(unfinished).rename(site)
    return site


def set_trap(folder: Path) -> None:
    """Makes this worker wait forever when it has stored a file whose path matches the pattern in the trap.

    The first worker to get there notes its process id in the folder; the others go on.
    """
    pattern = (folder / "trap").read_text()
    from transforms.dataset import files  # before any module that takes `store` from it

    store = files.store

    def store_and_wait(path: str, write) -> None:
        store(path, write)
        if re.search(pattern, path):
            with contextlib.suppress(FileExistsError), (folder / "trapped").open("x") as file:
                file.write(f"{os.getpid()}\n")
                file.flush()
                threading.Event().wait()

    files.store = store_and_wait


def main() -> None:
    """Becomes the worker that the pool asked for."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("id", "provision_endpoint", "artifact_endpoint", "control_endpoint", "logging_endpoint"):
        parser.add_argument(f"--{name}", default="")
    asked, _ = parser.parse_known_args()
    worker_id = asked.id.strip("'")  # Prism puts quotes around it
    metadata = (("worker_id", worker_id),)
    info = provision(asked.provision_endpoint, metadata)
    folder = Path(tempfile.mkdtemp(prefix="worker-", dir=Path.cwd()))
    wheels = fetch(info, info.artifact_endpoint.url or asked.artifact_endpoint, metadata, folder)
    if wheels:
        sys.path.insert(0, str(install(wheels, Path.cwd())))
    if Path("trap").exists():
        set_trap(Path.cwd())
    descriptors = {
        "LOGGING": info.logging_endpoint.url or asked.logging_endpoint,
        "CONTROL": info.control_endpoint.url or asked.control_endpoint,
        "STATUS": info.status_endpoint.url,
    }
    for name, url in descriptors.items():
        if url:
            descriptor = endpoints_pb2.ApiServiceDescriptor(url=url)
            os.environ[f"{name}_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(descriptor)
    os.environ["WORKER_ID"] = WorkerIdInterceptor._worker_id = worker_id  # the class looked before it was there
    os.environ["SEMI_PERSISTENT_DIRECTORY"] = str(folder)
    os.environ["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
    os.environ["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
    os.chdir(folder)
    sdk_worker_main.main(sys.argv[:1])


if __name__ == "__main__":
    main()
