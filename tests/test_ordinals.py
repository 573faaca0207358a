"""Ordinals are the positions of rows in the order of all ids, however the ids are divided into ranges and chunks."""

import dataclasses
import json
import pickle
import shutil
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from pipelines import cluster, mine
from pipelines.cluster_options import ClusterOptions
from pipelines.mine_options import MineOptions
from sbert_core.data import sorted_ids
from sbert_core.errors import DataError
from sbert_core.process_cache import clear_process_caches
from tests.corpora import blobs, clustered, make_corpus, run_mine, write_vectors
from transforms.dataset.assign_ordinals import AssignOrdinals
from transforms.dataset.corpus import Corpus, open_corpus
from transforms.dataset.ordinal_files import load_index, read_index
from transforms.dataset.ordinals import ids_of, ordinals_of_block, rows_of, take_rows
from transforms.dataset.sort_steps import assign_ordinals, divide_into_chunks

RANGE_BYTES, CHUNK_ROWS = 900, 333  # a few hundred rows need several of both


@dataclasses.dataclass(frozen=True)
class Plan:
    """The least that AssignOrdinals needs of a plan."""

    corpora: tuple[Corpus, ...]

    def with_corpora(self, corpora: tuple[Corpus, ...]) -> "Plan":
        return Plan(corpora)


def assign(folder: Path, *corpora: Corpus, **settings) -> tuple[tuple[Corpus, ...], dict[str, int]]:
    """Runs the transform in a pipeline; returns the corpora with ordinals, and the counters."""
    kept = folder / "plan.pickle"
    settings = {"folders": [str(folder / "ordinals")], "range_bytes": RANGE_BYTES, "chunk_rows": CHUNK_ROWS, **settings}
    pipeline = beam.Pipeline(runner=FnApiRunner())
    plans = pipeline | beam.Create([0]) | beam.Map(lambda _: Plan(corpora)) | AssignOrdinals(**settings)
    _ = plans | beam.Map(lambda plan: kept.write_bytes(pickle.dumps(plan)))
    result = pipeline.run()
    result.wait_until_finish()
    counters = {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}
    return pickle.loads(kept.read_bytes()).corpora, counters


def all_ordinals(corpus: Corpus) -> list[int]:
    return [int(each) for block in corpus.blocks for each in ordinals_of_block(corpus, block)]


def positions(values: list) -> list[int]:
    """The position of each value when all are sorted."""
    place = {value: position for position, value in enumerate(sorted(values))}
    return [place[value] for value in values]


def shuffled(values) -> list:
    return [values[row] for row in np.random.default_rng(1).permutation(len(values))]


def corpus_of(folder: Path, ids, shards: int = 3, block_rows: int = 130) -> Corpus:
    return open_corpus(write_vectors(folder, clustered(len(ids)), shards, id=ids), block_rows)


WORDS = ["s", "S", "é", "ß", "語", "\U0001f600", "a b", "\uffff"]
TEXT_IDS = shuffled([f"{WORDS[row % 8]}{row:03}" for row in range(1200)])
NUMBER_IDS = shuffled([row * 7 - 4000 for row in range(1200)])


@pytest.mark.parametrize("ids", [TEXT_IDS, NUMBER_IDS], ids=["texts", "numbers"])
@pytest.mark.parametrize(("shards", "block_rows"), [(1, 8192), (5, 100)])
def test_ordinals_are_those_of_a_plain_sort(tmp_path, ids, shards, block_rows):
    (corpus,), counters = assign(tmp_path, corpus_of(tmp_path / "in", ids, shards, block_rows))
    index = read_index(corpus.work)
    assert len(index.counts) > 5
    assert max(index.counts) < 4 * min(index.counts)
    expected = positions([each.encode() for each in ids] if ids is TEXT_IDS else ids)
    assert all_ordinals(corpus) == expected
    assert counters["rows_sorted"] == 1200
    in_process = assign_ordinals(corpus, str(tmp_path / "alone"), 2**20, 10_000)
    assert len(read_index(in_process.work).counts) == 1
    assert all_ordinals(in_process) == expected
    order = np.random.default_rng(2).integers(1200, size=3000).astype(np.uint32)  # some several times
    by_ordinal = dict(zip(expected, ids, strict=True))
    for each in (corpus, in_process):
        found = ids_of(each, order)
        assert found.to_pylist() == [by_ordinal[ordinal] for ordinal in order.tolist()]
        assert found.type == (pa.string() if ids is TEXT_IDS else pa.int64())
        assert [ids[row] for row in rows_of(each, order)] == found.to_pylist()


def test_rows_of_several_ranges_and_blocks(tmp_path):
    (corpus,), _ = assign(tmp_path, corpus_of(tmp_path / "in", TEXT_IDS))
    ordinals = np.array([0, 5, 333, 700, 1199], np.uint32)
    table = take_rows(corpus, ordinals, ["id", "text"])
    expected = sorted(TEXT_IDS, key=str.encode)
    assert table["id"].to_pylist() == [expected[ordinal] for ordinal in ordinals]
    assert table["text"].to_pylist() == [f"text {TEXT_IDS.index(each)}" for each in table["id"].to_pylist()]


def test_files_do_not_depend_on_blocks(tmp_path):
    contents = []
    for name, block_rows in (("large", 8192), ("small", 17)):
        corpus = corpus_of(tmp_path / "in", TEXT_IDS, block_rows=block_rows)
        (tmp_path / name).mkdir()
        assign(tmp_path / name, corpus)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / name / "ordinals").rglob("*.*")})
    assert contents[0] == contents[1]
    pattern = write_vectors(tmp_path / "in", clustered(1200), 1)
    chunks = [list(divide_into_chunks(open_corpus(pattern, rows), "", 333)) for rows in (8192, 17)]
    assert chunks[0] == chunks[1]


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(tmp_path, rows):
    (corpus,), _ = assign(tmp_path, corpus_of(tmp_path / "in", ["a"][:rows], 1))
    assert all_ordinals(corpus) == [0][:rows]
    ordinals = np.arange(rows, dtype=np.uint32)
    assert ids_of(corpus, ordinals).to_pylist() == ["a"][:rows]
    assert ids_of(corpus, ordinals).type == pa.string()
    assert take_rows(corpus, ordinals, ["id"])["id"].to_pylist() == ["a"][:rows]


@pytest.mark.parametrize("range_bytes", [RANGE_BYTES, 2**20])
def test_an_id_that_occurs_in_two_files(tmp_path, range_bytes):
    ids = [*TEXT_IDS[:-1], TEXT_IDS[7]]
    corpus = corpus_of(tmp_path / "in", ids)
    message = f"has two rows with the id {TEXT_IDS[7]!r}: ids must be unique"
    with pytest.raises(Exception, match=message):
        assign(tmp_path, corpus, range_bytes=range_bytes)
    with pytest.raises(DataError, match=message):
        assign_ordinals(corpus, str(tmp_path / "alone"), range_bytes, CHUNK_ROWS)
    assert load_index(str(next((tmp_path / "ordinals").glob("*"), tmp_path))) is None


def test_one_id_for_all_rows(tmp_path):
    with pytest.raises(DataError, match="has two rows with the id 'same id': ids must be unique"):
        assign_ordinals(corpus_of(tmp_path / "in", ["same id"] * 800), str(tmp_path / "o"), RANGE_BYTES, CHUNK_ROWS)


def test_rows_without_an_id(tmp_path):
    corpus = corpus_of(tmp_path / "in", [*TEXT_IDS[:600], None, *TEXT_IDS[601:]])
    with pytest.raises(Exception, match="has rows without an id in column 'id'"):
        assign(tmp_path, corpus)


def test_two_corpora_and_one_twice(tmp_path):
    one, other = corpus_of(tmp_path / "one", TEXT_IDS), corpus_of(tmp_path / "other", NUMBER_IDS)
    corpora, counters = assign(tmp_path, one, other, one)
    assert counters["rows_sorted"] == 2400
    assert [all_ordinals(corpus) for corpus in corpora] == [
        positions([each.encode() for each in TEXT_IDS]),
        positions(NUMBER_IDS),
        all_ordinals(corpora[0]),
    ]


def test_ids_that_overflow_offsets_of_32_bits(tmp_path, monkeypatch):
    opened = corpus_of(tmp_path / "in", TEXT_IDS)
    expected = sorted(TEXT_IDS, key=str.encode)
    monkeypatch.setattr(sorted_ids, "MAX_32_BIT_BYTES", 500)
    corpus = assign_ordinals(opened, str(tmp_path / "o"), RANGE_BYTES, CHUNK_ROWS)
    few, many = (ids_of(corpus, np.arange(rows, dtype=np.uint32)) for rows in (20, 1200))
    assert (few.to_pylist(), few.type) == (expected[:20], pa.string())  # the type of the column where it can be
    assert (many.to_pylist(), many.type) == (expected, pa.large_string())


def test_long_ids_do_not_make_a_large_range(tmp_path):
    ids = shuffled([f"a{row:04}" for row in range(900)] + [f"z{row:04}" + "long" * 50 for row in range(100)])
    corpus = assign_ordinals(corpus_of(tmp_path / "in", ids), str(tmp_path / "o"), 2000, CHUNK_ROWS)
    ordered, sizes, start = sorted(ids), [], 0
    for count in read_index(corpus.work).counts:
        sizes.append(sum(map(len, ordered[start : start + count])))
        start += count
    assert start == 1000
    assert max(sizes) < 2 * 2000


def test_the_next_job_does_not_sort(tmp_path):
    corpus = corpus_of(tmp_path / "in", TEXT_IDS)
    (first,), counters = assign(tmp_path, corpus)
    assert (counters["rows_sorted"], counters.get("rows_reused", 0)) == (1200, 0)
    other_blocks = corpus_of(tmp_path / "in", TEXT_IDS, block_rows=50)
    (second,), counters = assign(tmp_path, other_blocks)
    assert (counters.get("rows_sorted", 0), counters["rows_reused"]) == (0, 1200)
    assert first.work == second.work
    assert all_ordinals(second) == all_ordinals(first)
    elsewhere = [str(tmp_path / "elsewhere"), str(tmp_path / "ordinals")]
    (third,), counters = assign(tmp_path, corpus, folders=elsewhere)
    assert (third.work, counters["rows_reused"]) == (first.work, 1200)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("damage", ["flip", "delete"])
@pytest.mark.parametrize("name", ["ids-000002.arrow", "rows-000000.npy", "ordinals-000001.npy", "index.json"])
def test_damaged_ordinals_are_sorted_anew(tmp_path, name, damage):
    corpus = corpus_of(tmp_path / "in", TEXT_IDS)
    (first,), _ = assign(tmp_path, corpus)
    path = Path(first.work) / name
    content = path.read_bytes()
    path.unlink() if damage == "delete" else path.write_bytes(content[:9] + bytes([content[9] ^ 1]) + content[10:])
    clear_process_caches()
    (second,), counters = assign(tmp_path, corpus)
    assert counters["rows_sorted"] == 1200
    assert path.read_bytes() == content
    assert all_ordinals(second) == positions([each.encode() for each in TEXT_IDS])


def counters_of(output: Path) -> dict[str, int]:
    return json.loads((output / "neighbors/_run.json").read_text())["counters"]


def kept(output: Path) -> list[str]:
    return sorted(path.name for path in (output / "_ordinals").glob("*"))


def test_jobs_of_one_output_share_ordinals(tmp_path, monkeypatch):
    out = make_corpus(tmp_path / "out", *blobs(4, 30))
    (digest,) = kept(out)
    assert counters_of(out)["ordinals/rows_sorted"] == 120
    opened = open_corpus(str(out / "embeddings"))
    assert digest == opened.digest[:16]
    sorted_ranges = []
    monkeypatch.setattr(
        "transforms.dataset.assign_ordinals.sort_range", lambda *arguments: sorted_ranges.append(arguments)
    )
    clear_process_caches()
    cluster.run(ClusterOptions(input=str(out), output=str(out)))
    cluster.run(ClusterOptions(input=str(out), output=str(tmp_path / "elsewhere"), algorithm="components"))
    mine.run(MineOptions(input=str(out / "embeddings"), output=str(out), top_k=3, index="routed", block_rows=50))
    assert sorted_ranges == []
    assert counters_of(out)["ordinals/rows_reused"] == 120
    assert kept(out) == [digest]
    assert not kept(tmp_path / "elsewhere")


def test_results_do_not_depend_on_kept_ordinals(tmp_path):
    out = make_corpus(tmp_path / "out", *blobs(4, 30))
    options = ClusterOptions(input=str(out), output=str(out))
    parts = []
    for change in (lambda: None, lambda: shutil.rmtree(out / "_ordinals")):
        change()
        clear_process_caches()
        cluster.run(options)
        parts.append({path.name: path.read_bytes() for path in (out / "clusters").rglob("*.parquet")})
        shutil.rmtree(out / "clusters")
        assert len(kept(out)) == 1
    assert parts[0] == parts[1]


def test_kept_results_need_no_ordinals(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(60), 2)
    run_mine(pattern, tmp_path / "out")
    shutil.rmtree(tmp_path / "out/_ordinals")
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "yes"
    assert not (tmp_path / "out/_ordinals").exists()


def test_ordinals_of_an_earlier_corpus_are_deleted(tmp_path):
    first = write_vectors(tmp_path / "one", clustered(60), 2)
    other = write_vectors(tmp_path / "two", clustered(70), 2)
    run_mine(first, tmp_path / "out")
    (before,) = kept(tmp_path / "out")
    run_mine(other, tmp_path / "out", other=first)
    assert len(kept(tmp_path / "out")) == 2
    run_mine(other, tmp_path / "out")
    (after,) = kept(tmp_path / "out")
    assert after != before
    (tmp_path / "out/_ordinals/notes.txt").touch()
    run_mine(first, tmp_path / "out")
    assert kept(tmp_path / "out") == sorted([before, "notes.txt"])
