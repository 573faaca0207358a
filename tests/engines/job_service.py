"""Our job service and Beam's pool of external workers, in one process whose workers know nothing of our package.

Run as a script: `job_service.py BOOT_SCRIPT CHECKOUT`. Prints the two addresses as a line of JSON, and serves until its
input is closed, which also happens if the process that started it dies. Everything that listens here does so on the
loopback interface only, which Beam itself does not offer.
"""

import json
import re
import sys

import grpc
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

HOST = "127.0.0.1"
WORKERS = 2


def listen_on_loopback() -> None:
    """Makes every server of this process bind to the loopback interface, also where Beam says `[::]`."""
    server_type = type(grpc.server(None))
    add_port = server_type.add_insecure_port
    server_type.add_insecure_port = lambda self, address: add_port(self, re.sub(r"^.*:", f"{HOST}:", address))
    worker_handlers.ExternalWorkerHandler.host_from_worker = lambda self: HOST


if __name__ == "__main__":
    listen_on_loopback()
    boot, checkout = sys.argv[1:]
    sys.path.insert(0, checkout)  # of this process alone: workers do not inherit it
    from pipelines.job_service import new_service

    service = new_service(WORKERS)
    job_port = service.start_grpc_server()
    pool, _server = BeamFnExternalWorkerPoolServicer.start(use_process=True, container_executable=boot)
    print(json.dumps({"jobs": f"{HOST}:{job_port}", "workers": pool.replace("localhost", HOST)}), flush=True)
    sys.stdin.read()
