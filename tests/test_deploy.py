"""All of `deploy/` and of the operating guide that can be checked without the services they are for."""

import ast
import dataclasses
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import jsonschema
import pytest
import yaml
from google.cloud import dataflow_v1beta3

from deploy.dataflow import launch
from deploy.make_metadata import FOLDER, TEMPLATES, make_metadata, render
from pipelines.cli import OPTIONS
from pipelines.embed_options import EmbedOptions
from pipelines.flags import FlagParser, add_flags, parse_flags
from sbert_core.data.manifest import Manifest, Part
from tests.corpora import blobs, make_corpus, make_table, run_fake, write_shards
from tests.documents import code_blocks
from tests.tiny_models import make_transformer

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
FLINK = DEPLOY / "flink" / "flink.sh"
GUIDES = [ROOT / "docs" / "operating.md", DEPLOY / "README.md"]
DOCKERFILES = sorted(DEPLOY.rglob("Dockerfile"))
MANIFESTS = sorted(DEPLOY.rglob("*.yaml"))
# What Dataflow's launcher adds to the parameters of a template.
LAUNCHER_FLAGS = [
    *("--runner=DataflowRunner", "--project=my-project", "--region=us-central1", "--job_name=nightly-20260101"),
    *("--temp_location=gs://my-bucket/temp", "--staging_location=gs://my-bucket/staging"),
    *("--template_location=gs://my-bucket/staging/template_launches/1/job_object", "--num_workers=1"),
    *("--max_num_workers=9", "--machine_type=n1-standard-8", "--service_account_email=me@my-project.iam"),
    *("--subnetwork=regions/us-central1/subnetworks/inside", "--no_use_public_ips", "--worker_zone=us-central1-a"),
    *("--labels=team=search", "--dataflow_service_options=enable_prime", "--autoscaling_algorithm=THROUGHPUT_BASED"),
    *("--experiments=use_runner_v2", "--disk_size_gb=50", "--save_main_session"),
]


def parse(job: str, flags: list[str]) -> tuple[object, list[str]]:
    """Reads a command line as the program does; a mistake is a SystemExit or a DataError."""
    parser = FlagParser()
    options_type = getattr(importlib.import_module(f"pipelines.{job}_options"), OPTIONS[job])
    add_flags(parser, options_type)
    return parse_flags(parser, options_type, flags)


def commands_of(text: str) -> list[list[str]]:
    """The jobs and flags in lines that call sbert-beam: as it is, in its image, or through the script for Flink."""
    found = []
    for line in text.splitlines():
        words = shlex.split(line)
        starts = [at for at, word in enumerate(words) if word == "submit" or "sbert-beam-worker:" in word]
        if words[:1] == ["sbert-beam"]:
            found.append(words[1:])
        elif starts and words[0] in ("docker", "deploy/flink/flink.sh") and words[1] in ("run", "submit"):
            found.append(words[starts[0] + 1 :])
    return found


# Documents


def guide_commands() -> list[list[str]]:
    blocks = [block for path in GUIDES for block in code_blocks(path.read_text(encoding="utf-8"), "sh")]
    return [command for block in blocks for command in commands_of(block)]


@pytest.mark.parametrize("command", guide_commands(), ids=" ".join)
def test_commands_of_the_guides_parse(command):
    parse(command[0], command[1:])


def test_commands_of_the_guides_are_found():
    assert {command[0] for command in guide_commands()} == {"run", "embed", "mine"}
    lines = [line for path in GUIDES for block in code_blocks(path.read_text(), "sh") for line in block.splitlines()]
    jobs = [line for line in lines if re.search(r"\b(embed|mine|run) --input", line)]
    assert len(guide_commands()) == len(jobs)
    with pytest.raises(SystemExit):
        parse("embed", ["--input", "x", "--output", "y", "--runnner=FlinkRunner"])


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {title.lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\((?!http)([^)#]+)#?([^)]*)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
        assert not anchor or anchor in anchors(path.parent / target), anchor


def test_the_guide_lists_every_counter():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "transforms").rglob("*.py"))
    counters = re.findall(r"Metrics\.(?:counter|distribution)\(\"(\w+)\", \"(\w+)\"\)", sources)
    section = GUIDES[0].read_text(encoding="utf-8").split("## Monitoring")[1].split("\n## ")[0]
    listed = re.findall(r"`(\w+/\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)))
    assert sorted(listed) == sorted({f"{space}/{name}" for space, name in counters})


@pytest.mark.slow
def test_the_check_after_a_template(tmp_path):
    run_fake(write_shards(tmp_path / "in", make_table(20), 2), tmp_path / "out")
    (check,) = code_blocks(GUIDES[0].read_text(encoding="utf-8"), "python")
    check = check.replace("gs://my-bucket/out", str(tmp_path / "out"))
    exec(check, {})
    path = tmp_path / "out" / "rejected" / "_manifest.json"
    part = Part(name="lost.parquet", rows=1, bytes=1, sha256="0" * 64)
    path.write_bytes(Manifest(kind="rejected", parts=(part,)).to_json())
    with pytest.raises(AssertionError):
        exec(check, {})


def test_the_guide_has_a_place_for_the_proofs():
    text = GUIDES[0].read_text(encoding="utf-8")
    assert re.search(r"<!-- engines: written by python -m benchmarks.engines -->.*<!-- end of engines -->", text, re.S)


# Dataflow templates

SCHEMA = {
    "type": "object",
    "required": ["name", "description", "parameters"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "description": {"type": "string", "minLength": 1},
        "parameters": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "label", "helpText", "isOptional", "regexes", "paramType"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z_]+$"},
                    "label": {"type": "string", "minLength": 1},
                    "helpText": {"type": "string", "minLength": 1},
                    "isOptional": {"type": "boolean"},
                    "regexes": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "regex"}},
                    "paramType": {"enum": [kind.name for kind in dataflow_v1beta3.ParameterType]},
                },
            },
        },
    },
}


def load_metadata(job: str) -> dict:
    return json.loads((FOLDER / f"{job}.json").read_text(encoding="utf-8"))


def container_spec(metadata: dict) -> dataflow_v1beta3.ContainerSpec:
    """What Dataflow keeps of a template, in Google's own types, which know no other field."""
    spec = {"image": "launcher:1", "sdkInfo": {"language": "PYTHON"}, "metadata": metadata}
    return dataflow_v1beta3.ContainerSpec.from_json(json.dumps(spec))


@pytest.mark.parametrize("job", TEMPLATES)
def test_metadata_is_that_of_the_options(job):
    assert (FOLDER / f"{job}.json").read_text(encoding="utf-8") == render(job), "run python -m deploy.make_metadata"
    names = [parameter["name"] for parameter in load_metadata(job)["parameters"]]
    assert names == [field.name for field in dataclasses.fields(TEMPLATES[job][0])]


def test_every_template_has_its_file_and_its_job():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(TEMPLATES)
    assert all(hasattr(importlib.import_module(f"pipelines.{job}"), "submit") for job in TEMPLATES)


@pytest.mark.parametrize("job", TEMPLATES)
def test_metadata_is_what_dataflow_expects(job):
    metadata = load_metadata(job)
    validator = jsonschema.Draft202012Validator
    jsonschema.validate(metadata, SCHEMA, validator, format_checker=validator.FORMAT_CHECKER)
    parameters = container_spec(metadata).metadata.parameters
    assert [p.name for p in parameters if not p.is_optional] == ["input", "output"]
    assert all(p.regexes for p in parameters)


def test_googles_types_refuse_mistakes():
    metadata = make_metadata("embed")
    for broken in (
        {**metadata, "paramters": []},
        {**metadata, "parameters": [{**metadata["parameters"][0], "paramType": "NOPE"}]},
        {**metadata, "parameters": [{**metadata["parameters"][0], "optional": True}]},
    ):
        with pytest.raises(Exception, match=r"paramters|NOPE|optional"):
            container_spec(broken)


GOOD = {
    "csv_delimiter": [";", "tab"],
    "encoding": ["utf-8", "latin-1"],
    "skip_bad_files": ["true", "false"],
    "input": ["gs://my-bucket/in/*.parquet", "gs://my-bucket/in/"],
    "output": ["gs://my-bucket/out"],
    "model": ["/opt/model", "gs://my-bucket/model"],
    "text_column": ["text", "the text"],
    "id_column": ["id"],
    "prompt_name": ["query"],
    "prompt": ["query: "],
    "stored": ["float32", "int8"],
    "embedding_column": ["embedding"],
    "n_tokens_column": ["n_tokens"],
    "truncated_column": ["truncated"],
    "slice_rows": ["1", "8192"],
    "device": ["auto", "cpu"],
    "precision": ["auto", "bfloat16"],
    "workers": ["1", "16"],
    "accelerator": ["type:nvidia-l4;count:1", "type:nvidia-tesla-t4;count:1;install-nvidia-driver"],
    "encode_ram": ["16GB", "1.5TiB"],
    "encode_cpus": ["0", "8"],
    "overwrite": ["true", "false"],
    "other": ["gs://my-bucket/other/embeddings"],
    "top_k": ["32"],
    "min_neighbor_score": ["-1", "-1.0", "0.5"],
    "min_score": ["0.75", "0", "1", "1.0", "-0.2"],
    "max_pairs": ["500000"],
    "mutual": ["true", "false"],
    "strict": ["true", "false"],
    "margin": ["true", "false"],
    "max_lexical_overlap": ["0.5", "0", "1.0"],
    "cross_encoder": ["/opt/judge", "gs://my-bucket/judge"],
    "group_column": ["topic"],
    "pairing": ["within", "across", "all"],
    "duplicate_score": ["0.95"],
    "keep": ["newest", "first", "longest"],
    "newest_column": ["when"],
    "duplicate_chains": ["true", "false"],
    "index": ["exact", "routed"],
    "recall": ["0.97", "0.5"],
    "probes": ["3"],
    "cells": ["0", "1000"],
    "audit_rows": ["1000"],
    "block_rows": ["8192"],
    "algorithm": ["leiden", "hdbscan", "hdbscan_reduced", "kmeans"],
    "resolution": ["0", "1.5", "20"],
    "k": ["auto", "8"],
    "min_size": ["5"],
    "min_samples": ["5"],
    "reduction": ["pca", "umap"],
    "clusters": ["gs://my-bucket/out/clusters"],
    "labels_column": ["gold"],
    "time_column": ["day"],
    "period": ["M", "D"],
}
BAD = {
    "csv_delimiter": ["", "||", '"'],
    "encoding": ["", "utf 8"],
    "skip_bad_files": ["yes"],
    "input": ["", "in/*.parquet", "gs://", "gs://a b"],
    "output": ["", "/tmp/out", "xgs://out"],
    "model": ["", "default", "some/hub-name", "opt/model"],
    "text_column": ["", " "],
    "id_column": [""],
    "prompt_name": [""],
    "prompt": [""],
    "stored": ["float", "float32 ", "int88"],
    "embedding_column": [""],
    "n_tokens_column": [""],
    "truncated_column": [""],
    "slice_rows": ["0", "-1", "1.5", "many"],
    "device": ["gpu", "autocpu"],
    "precision": ["float", "half"],
    "workers": ["0", ""],
    "accelerator": ["nvidia-l4", "type:nvidia-l4;count:2", "type:tpu;count:1"],
    "encode_ram": ["16", "GB", "0GB"],
    "encode_cpus": ["-1", "two"],
    "overwrite": ["True", "yes", ""],
    "other": ["", "out/embeddings"],
    "top_k": ["0", "-3", "3.0"],
    "min_neighbor_score": ["-2", "--1", "1.1"],
    "min_score": ["", "75", ".75", "1.5", "0,75", "0.", "high"],
    "max_pairs": ["0", "1e6"],
    "mutual": ["1"],
    "strict": ["no"],
    "margin": ["True"],
    "max_lexical_overlap": ["-0.5", "2"],
    "cross_encoder": ["", "some/hub-name"],
    "group_column": [""],
    "pairing": ["none", "allwithin"],
    "duplicate_score": ["95", "-1.5"],
    "keep": ["last"],
    "newest_column": [""],
    "duplicate_chains": ["True"],
    "index": ["hnsw", "exact "],
    "recall": ["97%", "-0.9", ""],
    "probes": ["-1"],
    "cells": ["-1", "auto"],
    "audit_rows": ["0"],
    "block_rows": ["0"],
    "algorithm": ["dbscan", "leiden,kmeans"],
    "resolution": ["-1", "auto", "1."],
    "k": ["0", "many", "auto8"],
    "min_size": ["0"],
    "min_samples": ["0"],
    "reduction": ["tsne"],
    "clusters": ["", "out/clusters"],
    "labels_column": [""],
    "time_column": [" "],
    "period": ["H", "MM", ""],
}


def test_there_are_samples_of_every_parameter():
    names = {parameter["name"] for job in TEMPLATES for parameter in load_metadata(job)["parameters"]}
    assert names == GOOD.keys() == BAD.keys()


@pytest.mark.parametrize("job", TEMPLATES)
def test_regexes_accept_what_is_good_and_nothing_else(job):
    patterns = {parameter["name"]: parameter["regexes"] for parameter in load_metadata(job)["parameters"]}
    for name, (pattern,) in patterns.items():
        for value in GOOD[name]:
            assert re.search(pattern, value), (name, value)
        for value in BAD[name]:
            assert not re.search(pattern, value), (name, value)


@pytest.mark.parametrize("job", TEMPLATES)
def test_good_parameters_are_good_flags(job):
    options_type = TEMPLATES[job][0]
    given = {field.name: GOOD[field.name][0] for field in dataclasses.fields(options_type)}
    parameters = [f"--{name}={value}" for name, value in given.items()]
    options, rest = parse(job, launch.make_arguments(options_type, parameters, "worker:1"))
    assert options.output == given["output"]
    assert all(getattr(options, name) is True for name, value in given.items() if value == "true")
    assert rest == ["--sdk_container_image=worker:1", "--sdk_location=container"]


def test_the_image_says_what_the_parameters_do_not():
    given = launch.make_arguments(EmbedOptions, ["--overwrite=false", "--model=gs://my-bucket/model"], "worker:1")
    assert given[:2] == ["--sdk_container_image=worker:1", "--sdk_location=container"]
    assert "--model=/opt/model" in launch.make_arguments(EmbedOptions, ["--overwrite=false"], "worker:1")
    options, _ = parse("embed", [*given, "--input=x", "--output=y"])
    assert options.model == "gs://my-bucket/model"
    assert not options.overwrite


def make_input(job: str, folder: Path) -> list[str]:
    """Something for the job to read, and the parameters that say where."""
    if job == "embed":
        pattern = write_shards(folder / "in", make_table(5), 1)
        return [f"--input={pattern}", f"--model={make_transformer(folder / 'model')}"]
    vectors, truth = blobs()
    corpus = make_corpus(folder / "in", vectors[:40], truth[:40], mined=False)
    return [f"--input={corpus / 'embeddings' if job == 'mine' else corpus}"]


@pytest.fixture
def launch_job(tmp_path, monkeypatch):
    """Launches as Dataflow does, but for the last step: a dry run sends nothing."""
    monkeypatch.setenv("SBERT_BEAM_WORKER_IMAGE", "worker:1")

    def launch_job(job: str, *parameters: str) -> int:
        monkeypatch.setenv("SBERT_BEAM_JOB", job)
        return launch.main([f"--output={tmp_path / 'out'}", *parameters, *LAUNCHER_FLAGS, "--dry_run=True"])

    return launch_job


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "parameters", "step", "environments"),
    [
        # Encoding on machines with a GPU is an environment of its own.
        ("embed", ["--accelerator=type:nvidia-l4;count:1", "--overwrite=true"], "EncodeSentences/Encode", 2),
        ("mine", ["--mutual=true", "--strict=false"], "FindNeighbors/Compare", 1),
        ("mine", ["--index=routed"], "FindNeighbors/RouteRows/Route", 1),
        ("cluster", ["--algorithm=kmeans"], "ClusterCorpus/Start", 1),
    ],
)
def test_the_launcher_hands_the_graph_to_dataflow(
    launch_job, tmp_path, monkeypatch, job, parameters, step, environments
):
    module = importlib.import_module(f"pipelines.{job}")
    launched = []
    submit = module.submit
    monkeypatch.setattr(module, "submit", lambda *arguments: launched.append(submit(*arguments).job))
    assert launch_job(job, *make_input(job, tmp_path), *parameters) == 0
    (dataflow_job,) = launched
    assert dataflow_job.proto.name == "nightly-20260101"
    components = dataflow_job.proto_pipeline.components
    assert step in {transform.unique_name for transform in components.transforms.values()}
    images = [b"worker:1" in environment.payload for environment in components.environments.values()]
    assert images == [True] * environments


@pytest.mark.parametrize(
    ("job", "parameter", "message"),
    [
        ("embed", "--encode_ram=lots", "--encode_ram is a size with a unit, e.g. 16GB, got 'lots'"),
        ("mine", "--min_score=2", "--min_score is a cosine, between -1 and 1; got 2.0"),
        ("cluster", "--k=many", "--k is a number of clusters or auto, got 'many'"),
    ],
)
def test_the_launcher_reports_mistakes_in_one_line(launch_job, capsys, job, parameter, message):
    assert launch_job(job, "--input=nothing", parameter) == 2
    assert capsys.readouterr().err.strip().splitlines() == [f"sbert-beam {job}: {message}"]


# Images


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each with what follows it."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_dockerfile(path):
    found = instructions(path)
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "ENTRYPOINT"}
    assert {name for name, _ in found} <= known
    stages = {rest.split(" AS ")[1] for name, rest in found if name == "FROM" and " AS " in rest}
    allowed = path.with_name("Dockerfile.dockerignore").read_text().splitlines()
    for name, rest in found:
        if name != "COPY":
            continue
        *sources, _ = shlex.split(rest)
        if sources[0].startswith("--from="):
            assert sources[0].removeprefix("--from=") in stages
            continue
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in allowed, f"{source} is not in the build's context"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_dockerfile_lint(path):
    if not (hadolint := shutil.which("hadolint")):
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_versions_agree():
    pinned = re.search(r"^apache-beam==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    python = re.search(r'python_requires=">=(.+)"', (ROOT / "setup.py").read_text())[1]
    arguments = dict(rest.split("=") for name, rest in instructions(DEPLOY / "worker/Dockerfile") if name == "ARG")
    assert (arguments["BEAM_VERSION"], arguments["PYTHON_VERSION"]) == (pinned, python)
    flink, beam = re.findall(r"^(?:FLINK|BEAM)_VERSION=(.+)$", FLINK.read_text(), re.MULTILINE)
    assert beam == pinned
    texts = [path.read_text(encoding="utf-8") for path in (*MANIFESTS, *GUIDES)]
    jars = {jar for text in texts for jar in re.findall(r"beam-runners-flink-[\w.-]*\.jar", text)}
    assert jars == {f"beam-runners-flink-{flink}-job-server-{beam}.jar"}


def test_the_model_is_where_the_launcher_looks():
    targets = [
        rest for name, rest in instructions(DEPLOY / "worker/Dockerfile") if name == "COPY" and "=model " in rest
    ]
    assert targets == [f"--from=model / {launch.MODEL}"]


# Flink


def run_script(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "SBERT_BEAM_FLINK": str(folder), "FLINK_REST_PORT": "1", **variables}
    return subprocess.run(["bash", FLINK, *arguments], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.sh")), ids=lambda path: path.name)
def test_shell_scripts(path):
    subprocess.run(["bash", "-n", path], check=True)
    assert os.access(path, os.X_OK)
    if not (shellcheck := shutil.which("shellcheck")):
        pytest.skip("only the syntax was checked: shellcheck is not installed")
    done = subprocess.run([shellcheck, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_flink_script_says_what_it_can(tmp_path):
    done = run_script(folder=tmp_path)
    assert done.returncode == 2
    told = set(re.findall(r"^  (\w+) ", done.stdout, re.MULTILINE))
    assert told == set(re.search(r"^    (start.*?)\) \"\$command\"", FLINK.read_text(), re.MULTILINE)[1].split(" | "))
    assert run_script("nonsense", folder=tmp_path).returncode == 2


def test_flink_script_without_a_cluster(tmp_path):
    for arguments in (["status"], ["submit", "embed"]):
        done = run_script(*arguments, folder=tmp_path)
        assert done.returncode == 1
        assert done.stderr.strip() == "flink.sh: no cluster answers on port 1: flink.sh start"
    assert run_script("stop", folder=tmp_path).returncode == 0


def test_flink_script_fetches_the_job_server(tmp_path):
    assert "set MAVEN_REPOSITORY to the address of" in run_script("fetch", folder=tmp_path).stderr
    done = run_script("fetch", folder=tmp_path, MAVEN_REPOSITORY=f"file://{tmp_path}/nowhere")
    assert done.returncode == 1
    assert "set MAVEN_REPOSITORY to a Maven repository that this machine reaches" in done.stderr
    assert list(tmp_path.iterdir()) == []
    name = "beam-runners-flink-2.2-job-server"
    jar = tmp_path / "maven" / "org/apache/beam" / name / "2.77.0" / f"{name}-2.77.0.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"jar")
    done = run_script("fetch", folder=tmp_path / "flink", MAVEN_REPOSITORY=f"file://{tmp_path}/maven")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "flink" / jar.name).read_bytes() == b"jar"


def test_flink_script_submits_with_flags_that_beam_has(tmp_path):
    for name, script in (("curl", "exit 0"), ("sbert-beam", 'printf "%s\\n" "$@"')):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    (tmp_path / "server.jar").touch()
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    jar = str(tmp_path / "server.jar")
    done = run_script(
        *("submit", "embed", "--input", "x", "--output", "y"), folder=tmp_path, PATH=path, FLINK_JOB_SERVER_JAR=jar
    )
    assert done.returncode == 0, done.stderr
    job, *flags = done.stdout.splitlines()
    _, rest = parse(job, flags)
    assert {"--runner=FlinkRunner", "--flink_master=localhost:1", f"--flink_job_server_jar={jar}"} <= set(rest)


# Kubernetes and schedules


def containers(node: object) -> list[dict]:
    """Every container of a manifest, wherever it is."""
    if isinstance(node, list):
        return [found for item in node for found in containers(item)]
    if not isinstance(node, dict):
        return []
    here = node.get("containers", []) if isinstance(node.get("containers"), list) else []
    return [*here, *(found for value in node.values() if value is not here for found in containers(value))]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_manifests(path):
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    assert all({"apiVersion", "kind", "metadata", "spec"} == set(document) for document in documents)
    jobs = [container for container in containers(documents) if container.get("command", [""])[0] == "sbert-beam"]
    assert jobs
    for container in jobs:
        options, _ = parse(container["command"][1], container["args"])
        assert options.model == launch.MODEL
    claims = {d["metadata"]["name"] for d in documents if d["kind"] == "PersistentVolumeClaim"}
    used = set(re.findall(r"claimName: ([\w-]+)", path.read_text()))
    assert claims <= used


def test_the_flink_job_finds_its_servers():
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "flink.yaml").read_text(encoding="utf-8")))
    by_kind = {document["kind"]: document for document in documents}
    (job,) = containers(by_kind["Job"])
    _, beam_flags = parse("run", job["args"])
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in beam_flags)
    service = by_kind["Service"]
    ports = {port["name"]: f"{service['metadata']['name']}:{port['port']}" for port in service["spec"]["ports"]}
    assert (flags["job_endpoint"], flags["artifact_endpoint"]) == (ports["jobs"], ports["artifacts"])
    (server,) = containers(by_kind["Deployment"])
    assert f"--flink-master={by_kind['FlinkDeployment']['metadata']['name']}-rest:8081" in server["args"]
    assert by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"] == service["spec"]["selector"]
    assert int(flags["parallelism"]) == by_kind["FlinkDeployment"]["spec"]["taskManager"]["replicas"]


def test_crontab():
    lines = [line for line in (DEPLOY / "cron/crontab").read_text().splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert "%" not in line, "cron would end the line there"
        assert re.match(r"(\S+ ){5}flock -n ", line)
        _, job, *flags = shlex.split(line[line.index("sbert-beam run") :])
        parse(job, flags)


def test_airflow_dag(monkeypatch):
    path = DEPLOY / "airflow" / "sbert_beam_daily.py"
    ast.parse(path.read_text(encoding="utf-8"))
    chained = []

    class Dag:
        def __init__(self, **settings):
            assert settings["max_active_runs"] == 1
            assert not settings["catchup"]

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    stand_ins = {
        "airflow.sdk": {"DAG": Dag, "chain": lambda *tasks: chained.extend(tasks)},
        "airflow.providers.standard.operators.bash": {"BashOperator": types.SimpleNamespace},
    }
    for name, contents in stand_ins.items():
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), {})
    assert [task.task_id for task in chained] == ["embed", "mine", "cluster", "report"]
    outputs = []
    for task in chained:
        program, job, *flags = shlex.split(task.bash_command)
        options, rest = parse(job, flags)
        assert (program, job, rest) == ("sbert-beam", task.task_id, [])
        outputs.append(options.output or options.input)
    assert len(set(outputs)) == 1
