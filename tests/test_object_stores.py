"""All jobs with input, output and models in object stores: the same bytes, after kills too, and a count of requests.

The stores are servers on loopback. ENGINES_RECORD names a file that is told what was proven; requests are told to
`requests.json` beside it. Tests share servers and results: give this file to one process.
"""

import functools
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.aws import s3io
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.engines import render_requests
from pipelines import folder_progress, mine
from pipelines.cli import main
from sbert_beam import SentenceEncoder
from sbert_core.data.manifest import MANIFEST
from sbert_core.process_cache import clear_process_caches
from tests.engines.catalog import JOBS
from tests.engines.jobs import arguments_of, run_command
from tests.engines.object_stores import CHANGES, KINDS, S3_NAME, STORES, Store, running_store
from tests.engines.outputs import contents, timeless
from tests.engines.record import note_requests, proving
from tests.engines.sentences import make_sentences, make_texts
from tests.tiny_models import make_classifier, make_transformer
from transforms.dataset.files import TEMPORARY_NAME, open_file
from transforms.dataset.published import read_dataset
from transforms.neighbors import exact, tile_tasks

pytestmark = pytest.mark.engines

SECONDS = 120
BLOCKS = (4, 8, 16)
BLOCK_ROWS = 8


@pytest.fixture(scope="module", params=STORES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Path:
    """A folder with the sentences and the models."""
    folder = tmp_path_factory.mktemp("local")
    make_sentences(folder / "sentences")
    make_transformer(folder / "model")
    make_classifier(folder / "classifier").rename(folder / "cross-encoder")
    return folder


@pytest.fixture(scope="module")
def store(name, local, tmp_path_factory) -> Iterator[Store]:
    """A store with the sentences and the models."""
    clear_process_caches()  # they may hold a client of another store
    with running_store(name, tmp_path_factory.mktemp("store")) as running:
        for folder in ("sentences", "model", "cross-encoder"):
            running.upload(local / folder, folder)
        yield running
    clear_process_caches()


@pytest.fixture(scope="module")
def do(store, local, tmp_path_factory) -> Callable[[str, bool], str]:
    """Does a command and returns its output: all in the store, or with sentences and output on disk.

    The models are in the store in both cases: manifests tell where they were.
    """

    @functools.cache
    def do_command(command: str, in_store: bool) -> str:
        sentences = store.path("sentences") if in_store else str(local / "sentences")
        output = store.path(command) if in_store else str(tmp_path_factory.mktemp(command))
        models = (store.path("model"), store.path("cross-encoder"))
        arguments = arguments_of(command, sentences, *models, lambda other: do_command(other, in_store))
        assert run_command(command, [*arguments, "--output", output]) == 0
        return output

    return do_command


def found_below(store: Store, folder: str, counters: bool = True) -> dict[str, bytes]:
    """The objects below a folder, as `contents` has the files of one."""
    prefix = f"{folder}/"
    objects = {name.removeprefix(prefix): each for name, each in store.objects().items() if name.startswith(prefix)}
    return {name: timeless(name, objects[name], counters) for name in sorted(objects)}


# The manifest of rows that were assigned to existing clusters tells where these are, so its bytes differ.
@pytest.mark.parametrize("job", [job for job in JOBS if job != "cluster, existing"])
def test_same_bytes(name, job, request):
    with proving(name, job):
        store, do = (request.getfixturevalue(fixture) for fixture in ("store", "do"))
        command = JOBS[job].command
        expected = Path(do(command, False))
        do(command, True)
        for folder in JOBS[job].folders:
            found = found_below(store, f"{command}/{folder}".rstrip("/"))
            assert found
            assert found == contents(expected / folder)


def test_a_model_in_the_store_is_the_model_on_disk(store, local):
    found, expected = (SentenceEncoder.load(place, device="cpu") for place in (store.path("model"), local / "model"))
    assert found.fingerprint == expected.fingerprint


def test_a_second_run_does_nothing_again(store, do, capsys):
    output = do("run", True)
    before = found_below(store, "run", counters=False)
    capsys.readouterr()
    written: list[str] = []
    store.watch = lambda kind, name: kind != "copy" or not written.append(name)
    try:
        assert (
            main([*arguments_of("run", store.path("sentences"), store.path("model"), "", do), "--output", output]) == 0
        )
    finally:
        store.watch = None
    told = capsys.readouterr().out
    assert "parts kept  8\n" in told
    assert told.count("kept from before  yes") == 2
    assert not [each for each in written if each.endswith(".parquet")]
    assert found_below(store, "run", counters=False) == before


def test_verify_finds_what_is_damaged(store, do, capsys):
    output = do("run", True)
    assert main(["verify", output]) == 0
    part = next(each for each in store.objects() if each.startswith("run/pairs/") and each.endswith(".parquet"))
    content = store.objects()[part]
    store.put(part, content[:-10])
    capsys.readouterr()
    assert main(["verify", output]) == 1
    assert f"{store.path(part)} has {len(content) - 10} bytes" in "".join(capsys.readouterr())
    store.put(part, content)
    assert main(["verify", output]) == 0


def test_an_object_that_is_missing_is_a_system_error(store):
    with pytest.raises(OSError, match=r"Not found|^404 "):
        open_file(store.path("nothing.parquet"))


def killed_at(store: Store, command: list[str], kind: str, is_fatal: Callable[[str], bool]) -> None:
    """Runs a command in a process that is killed at a request, which is not done."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def watch(asked: str, name: str) -> bool:
        if asked == kind and is_fatal(name):
            os.kill(process.pid, signal.SIGKILL)
            return False
        return True

    store.watch = watch
    try:
        assert process.wait(SECONDS) == -signal.SIGKILL
    finally:
        store.watch = None
        process.kill()
        process.wait()


def is_complete(store: Store, folder: str) -> bool:
    """Whether a reader that looks now finds a manifest, and all that it lists."""
    objects = store.objects()
    parts = json.loads(objects[f"{folder}/{MANIFEST}"])["parts"]
    return all(len(objects.get(f"{folder}/{part['name']}", b"")) == part["bytes"] for part in parts)


def test_readers_see_a_complete_dataset_whenever_a_job_is_killed(store, local, tmp_path):
    """New input is embedded over an old result by a job that is killed twice: while it writes, and as it publishes."""
    make_sentences(tmp_path / "sentences")
    store.upload(tmp_path / "sentences", "changing")
    options = ["--model", store.path("model"), "--slice_rows", "16"]
    command = ["embed", "--input", store.path("changing"), "--output", store.path("changed"), *options]
    assert main(command) == 0
    old = read_dataset(store.path("changed/embeddings"))
    table = pq.read_table(tmp_path / "sentences/part-3.parquet")
    table = table.set_column(1, "text", pa.array([f"{text} again" for text in table["text"].to_pylist()]))
    pq.write_table(table, tmp_path / "sentences/part-3.parquet", row_group_size=8)
    store.upload(tmp_path / "sentences", "changing")
    folders = [f"changed/{each}" for each in ("embeddings", "rejected")]

    parts = itertools.count()
    killed_at(store, command, "copy", lambda name: name.endswith(".parquet") and next(parts) == 2)
    killed_at(store, command, "copy", lambda name: name == f"changed/embeddings/{MANIFEST}")
    assert all(is_complete(store, folder) for folder in folders)
    assert read_dataset(store.path("changed/embeddings")).equals(old)
    assert any(TEMPORARY_NAME.fullmatch(each.rsplit("/", 1)[-1]) for each in store.objects())  # of the killed jobs

    incomplete: list[str] = []

    def watch(kind: str, name: str) -> bool:
        if kind in CHANGES:
            incomplete.extend(
                f"{folder} before {kind} of {name}" for folder in folders if not is_complete(store, folder)
            )
        return True

    store.watch = watch
    try:
        assert main(command) == 0
    finally:
        store.watch = None
    assert not incomplete
    assert not any(TEMPORARY_NAME.fullmatch(each.rsplit("/", 1)[-1]) for each in store.objects())
    figures = json.loads(store.objects()["changed/embeddings/_run.json"])
    assert figures["parts kept"] == figures["parts"] == 10  # the second of the killed jobs had written all of them
    expected = ["embed", "--input", str(tmp_path / "sentences"), "--output", str(tmp_path / "out"), *options]
    assert main(expected) == 0
    for folder in ("embeddings", "rejected"):
        assert found_below(store, f"changed/{folder}", counters=False) == contents(tmp_path / "out" / folder, False)


def test_mining_continues_after_a_kill(store, do):
    command = [*arguments_of("exact", "", "", "", lambda other: do(other, True)), "--output", store.path("killed")]
    tiles = itertools.count()
    killed_at(store, command, "copy", lambda name: "/tile-" in name and next(tiles) == 4)
    assert not any(each.endswith(MANIFEST) for each in found_below(store, "killed"))
    assert main(command) == 0
    counters = json.loads(store.objects()["killed/neighbors/_run.json"])["counters"]
    assert (counters["mine/tile_tasks"], counters["mine/tile_tasks_reused"]) == (10, 4)
    do("exact", True)
    assert found_below(store, "killed", counters=False) == found_below(store, "exact", counters=False)


@pytest.mark.parametrize("name", [S3_NAME], indirect=True)
def test_flags_of_the_store_reach_worker_processes(store, local, do, monkeypatch):
    """They are the alternative to the environment; one boto3 client serves all requests of a process."""
    secrets = {"AWS_ENDPOINT_URL": "endpoint_url", "AWS_ACCESS_KEY_ID": "access_key_id"}
    secrets |= {"AWS_SECRET_ACCESS_KEY": "secret_access_key", "AWS_DEFAULT_REGION": "region_name"}
    flags = [f"--s3_{flag}={store.environment[variable]}" for variable, flag in secrets.items()]
    for variable in secrets:
        monkeypatch.delenv(variable)
    command = ["embed", "--input", store.path("sentences"), "--output", store.path("flags")]
    clear_process_caches()
    assert main([*command, "--model", str(local / "model"), "--workers=2", *flags]) == 0
    found = {name: each for name, each in found_below(store, "flags/embeddings").items() if name.endswith(".parquet")}
    monkeypatch.undo()
    do("run", True)
    assert found == {name: each for name, each in found_below(store, "run/embeddings").items() if name in found}
    assert len(found) == 8
    clients = {id(s3io.S3IO(options=PipelineOptions(flags)).client.client) for _ in range(3)}
    assert len(clients) == 1


@pytest.mark.parametrize("name", [S3_NAME], indirect=True)
def test_requests_grow_no_faster_than_blocks(store, local, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_progress, "_POLL_SECONDS", 600)  # how often it looks depends on time
    monkeypatch.setattr(tile_tasks, "MIN_RUNS", BLOCKS[0])
    monkeypatch.setattr(exact, "compare_tile", _compare_uncached)
    small_groups = functools.partial(mine.RoutingSettings, group_rows=2 * BLOCK_ROWS)
    monkeypatch.setattr(mine, "RoutingSettings", small_groups)
    counts: dict[str, dict[int, dict[str, int]]] = {}
    for blocks in BLOCKS:
        for job, command in growing_jobs(store, local, tmp_path, blocks).items():
            with store.counting() as counted:
                assert main(command) == 0
            counts.setdefault(job, {})[blocks] = {kind: counted[kind] for kind in KINDS}
    note_requests(S3_NAME, counts)
    found = {(job, kind): [sizes[blocks][kind] for blocks in BLOCKS] for job, sizes in counts.items() for kind in KINDS}
    assert not {key: numbers for key, numbers in found.items() if grows_too_fast(*numbers)}


def grows_too_fast(few: int, some: int, many: int) -> bool:
    """Whether requests grow faster than the number of blocks, which doubles twice.

    What grows with it grows twice as much the second time; what grows with blocks x blocks, four times as much.
    """
    return many - some > 2.1 * max(some - few, 0) + 12


def test_requests_for_every_pair_of_blocks_would_be_found():
    pairs = [blocks * (blocks + 1) // 2 for blocks in BLOCKS]
    assert grows_too_fast(*(100 + 30 * blocks + number for blocks, number in zip(BLOCKS, pairs, strict=True)))
    assert not grows_too_fast(*(100 + 30 * blocks for blocks in BLOCKS))


COMPARE_TILE = exact.compare_tile


def _compare_uncached(*arguments):
    """Each task as on a worker of its own, which has no block yet."""
    clear_process_caches()
    return COMPARE_TILE(*arguments)


def growing_jobs(store: Store, local: Path, folder: Path, blocks: int) -> dict[str, list[str]]:
    """The commands of all jobs on a corpus of so many blocks, each a part."""
    rows = blocks * BLOCK_ROWS
    table = pa.table({"id": [f"r{row:05}" for row in range(rows)], "text": make_texts(rows)})
    pq.write_table(table, folder / "part.parquet", row_group_size=BLOCK_ROWS)
    place = f"growing/{blocks}"
    store.put(f"{place}/sentences/part.parquet", (folder / "part.parquet").read_bytes())
    out, size = store.path(f"{place}/out"), f"--block_rows={BLOCK_ROWS}"
    model = ["--model", str(local / "model")]
    compare = ["mine", "--input", f"{out}/embeddings", "--top_k=4", size]
    routed = ["--index=routed", f"--cells={blocks // 2}", "--probes=2"]
    return {
        "embed": ["embed", "--input", store.path(f"{place}/sentences"), "--output", out, *model],
        "mine, exact": [*compare, "--output", out],
        "mine, routed": [*compare, "--output", store.path(f"{place}/routed"), *routed],
        "cluster, leiden": ["cluster", "--input", out, "--output", out, size],
    }


def test_the_table_of_requests():
    counts = {"s3": {"embed": {"12": dict.fromkeys(KINDS, 1), "24": dict.fromkeys(KINDS, 2)}}}
    text = render_requests("Before\n<!-- requests: made -->\nold\n<!-- end of requests -->\nAfter\n", counts)
    assert "| embed | 12 | " + " | ".join("1" * len(KINDS)) + " |" in text
    assert render_requests(text, counts) == text
    assert "old" not in text
