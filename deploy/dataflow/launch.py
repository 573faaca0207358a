"""The program of a flex template's launcher: builds the job of the image and submits it to Dataflow.

Dataflow calls it with the template's parameters and its own options, all as `--name=value`, and takes the job that was
submitted. Waiting for that job here would make the launch fail.
"""

import dataclasses
import importlib
import os
import sys
from collections.abc import Sequence

from pipelines.cli import OPTIONS
from pipelines.flags import FlagParser, add_flags, parse_flags
from sbert_core.errors import SbertBeamError

MODEL = "/opt/model"  # the folder of the model in the worker image


def make_arguments(options: type, parameters: Sequence[str], worker_image: str) -> list[str]:
    """The command line for the parameters of a template, which has `--overwrite=true` instead of `--overwrite`.

    The model of the image is the default of --model.
    """
    switches = {f"--{field.name}" for field in dataclasses.fields(options) if "action" in field.metadata["argparse"]}
    arguments = [f"--sdk_container_image={worker_image}", "--sdk_location=container"]
    given = {parameter.partition("=")[0] for parameter in parameters}
    if "--model" not in given and any(field.name == "model" for field in dataclasses.fields(options)):
        arguments.append(f"--model={MODEL}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name not in switches:
            arguments.append(parameter)
        elif value == "true":
            arguments.append(name)
    return arguments


def main(parameters: Sequence[str]) -> int:
    """Submits the job; returns 0 if Dataflow has it, 2 if parameters or input are wrong."""
    job = os.environ["SBERT_BEAM_JOB"]
    options_type = getattr(importlib.import_module(f"pipelines.{job}_options"), OPTIONS[job])
    parser = FlagParser(prog=f"sbert-beam {job}", allow_abbrev=False)
    add_flags(parser, options_type)
    arguments = make_arguments(options_type, parameters, os.environ["SBERT_BEAM_WORKER_IMAGE"])
    try:
        options, beam_flags = parse_flags(parser, options_type, arguments)
        importlib.import_module(f"pipelines.{job}").submit(options, beam_flags)
    except SbertBeamError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
