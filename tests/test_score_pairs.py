"""Cross-encoders on workers: loaded once per process, and the same scores however pairs are divided."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from pipelines import search
from pipelines.cli import main
from pipelines.search_options import SearchOptions
from tests.corpora import clustered, write_vectors
from tests.engines.many_bundles import ManyBundlesRunner
from tests.mined_outputs import read_dataset, run_transforms
from tests.tiny_models import make_classifier, make_transformer
from transforms.neighbors import score_pairs
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.paraphrases import MineParaphrases
from transforms.neighbors.score_pairs import Chunk, ChunkScores, ScorePairs, join_scores, make_chunks

LOADED: list[str] = []


class LengthScorer:
    """Scores a pair by the lengths of its texts, and by the number of pairs that are scored with it."""

    def score(self, pairs):
        return np.array([len(one) + 10 * len(other) + 100 * len(pairs) for one, other in pairs])


def load_length_scorer(source: str) -> LengthScorer:
    LOADED.append(source)
    return LengthScorer()


def test_chunks_hold_whole_groups_in_their_order(monkeypatch):
    monkeypatch.setattr(score_pairs, "PAIRS_PER_CHUNK", 5)
    groups = [[(f"{group}", f"{pair}") for pair in range(size)] for group, size in enumerate([3, 2, 0, 4, 7, 1])]
    chunks = list(make_chunks(9, groups))
    assert [chunk.first for chunk in chunks] == [0, 5, 9, 16]
    assert {chunk.key for chunk in chunks} == {9}
    assert [group for chunk in chunks for group in chunk.groups] == groups
    assert list(make_chunks(9, [[], []])) == []


def test_a_chunk_of_long_texts_is_closed_early():
    group = [("a" * 300_000, "b")]
    assert [len(chunk.groups) for chunk in make_chunks(0, [group] * 3)] == [1, 1, 1]


def test_scores_are_joined_in_the_order_of_pairs():
    parts = [ChunkScores(2, np.array([3.0], np.float32)), ChunkScores(0, np.array([1.0, 2.0], np.float32))]
    assert join_scores(parts).tolist() == [1, 2, 3]
    assert join_scores([]).dtype == np.float32


@pytest.mark.parametrize("runner", [FnApiRunner, ManyBundlesRunner])
def test_a_process_loads_one_cross_encoder_for_all_chunks(runner):
    LOADED.clear()
    chunks = [Chunk(number % 2, number, [[("a", "bb")], [("a", "b"), ("aaa", "")]]) for number in range(40)]
    expected = [(chunk.key, chunk.first, (121.0, 211.0, 203.0)) for chunk in chunks]
    with beam.Pipeline(runner=runner()) as root:
        scored = root | beam.Create(chunks) | ScorePairs(cross_encoder="model", load=load_length_scorer)
        values = scored | beam.MapTuple(lambda key, found: (key, found.first, tuple(found.scores.tolist())))
        assert_that(values, equal_to(expected))
    new_workers = ManyBundlesRunner.happened["new workers"] if runner is ManyBundlesRunner else 0
    assert 1 <= len(LOADED) <= 1 + new_workers


@pytest.mark.slow
def test_pairs_are_the_same_however_chunks_are_cut(tmp_path, monkeypatch):
    model = make_classifier(tmp_path / "model")
    texts = [f"a man is playing the flute {'again ' * (row % 7)}" for row in range(120)]
    pattern = write_vectors(tmp_path / "in", clustered(120, 4), 3, text=texts)
    tables = []
    for number, (block_rows, pairs_per_chunk) in enumerate([(200, 10_000), (25, 1)]):
        monkeypatch.setattr(score_pairs, "PAIRS_PER_CHUNK", pairs_per_chunk)
        folder = tmp_path / f"out{number}"
        mine = MineParaphrases(folder=str(folder / "pairs"), min_score=0.3, cross_encoder=str(model))
        run_transforms(
            FindNeighbors(corpus=pattern, work=str(folder / "_work"), k=5, block_rows=block_rows), {"a": mine}
        )
        tables.append(read_dataset(folder / "pairs"))
    assert tables[0].equals(tables[1])
    assert len(tables[0]) > 256  # several groups


@pytest.mark.slow
def test_hits_of_a_query_do_not_depend_on_the_others(tmp_path):
    model, scorer = make_transformer(tmp_path / "model"), make_classifier(tmp_path / "cross-encoder")
    words = ["parcel", "flute", "fox", "dog", "cost"]
    lines = [f"where is my {words[row % 5]} {'please ' * (row % 4)}" for row in range(40)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    embed = ["embed", "--input", f"{tmp_path}/corpus.txt", "--output", f"{tmp_path}/out", "--model", str(model)]
    assert main(embed) == 0
    options = {"corpus": f"{tmp_path}/out/embeddings", "top_k": 6, "cross_encoder": str(scorer)}
    found = []
    for name, queries in {"few": lines[:3], "many": lines[:30]}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(queries))
        search.run(
            SearchOptions(queries=f"{tmp_path}/{name}.txt", output=f"{tmp_path}/{name}", **options, block_rows=8)
        )
        table = read_dataset(tmp_path / name / "search").to_pylist()
        found.append([(row["query"], row["id"], row["score"]) for row in table if row["query"] in lines[:3]])
    assert set(found[0]) == set(found[1])
    assert len(found[0]) >= 18
