"""Training examples from the outputs of jobs: pairs as positives, neighbours as hard negatives."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pipelines import embed, mine
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from sbert_beam import SentenceEncoder
from sbert_core.data.examples import Examples
from sbert_core.data.schema import neighbors_schema, pairs_schema
from sbert_core.errors import DataError
from sbert_core.training.mined_examples import examples_from_pairs, hard_negatives, mine_hard_negatives
from tests.corpora import write_manifest
from tests.tiny_models import make_transformer

# A corpus of rows at known cosines to the first: 1, 0.9, 0.8 and so on.
TEXTS = ["the anchor", "a near one", "The Near One", "the positive", "A NEAR ONE ", "a far one", "a farther one"]
COSINES = [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3]


def write_dataset(folder: Path, table: pa.Table, parts: int = 1, **manifest) -> str:
    """A dataset as jobs leave it, with a part of an earlier run that is no longer one of it."""
    folder.mkdir(parents=True)
    size = -(-len(table) // parts)
    names = [f"part-{part}.parquet" for part in range(parts)]
    for part, name in enumerate(names):
        pq.write_table(table.slice(part * size, size), folder / name)
    pq.write_table(table.slice(0, 1), folder / "part-stale.parquet")
    write_manifest(folder, names, **manifest)
    return str(folder)


def pairs_table(*rows: tuple[str | None, str | None, float]) -> pa.Table:
    same = {"lexical_overlap": 0, "numbers_differ": False}
    columns = [
        {"id_a": str(n), "id_b": "z", "score": score, "cosine": score, "text_a": a, "text_b": b, **same}
        for n, (a, b, score) in enumerate(rows)
    ]
    return pa.Table.from_pylist(columns, pairs_schema(pa.string(), pa.string()))


def write_corpus(folder: Path, id_type: pa.DataType | None = None, **names) -> tuple[str, str]:
    """The corpus and all its neighbours."""
    id_type = id_type or pa.string()
    vectors = np.array([[cosine, np.sqrt(1 - cosine**2)] for cosine in COSINES], np.float32)
    numbers = [9, 8, 7, 6, 5, 4, 3]  # not in the order of the rows
    ids = pa.array([str(number) for number in numbers]).cast(id_type)
    kind = pa.list_(pa.field("item", pa.float32(), nullable=False), 2)
    table = pa.table(
        {
            names.get("id", "id"): ids,
            names.get("text", "text"): TEXTS,
            names.get("embedding", "embedding"): pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.ravel()), type=kind
            ),
        }
    )
    settings = {"text_column": names.get("text", "text"), "embedding": names.get("embedding", "embedding")}
    embeddings = write_dataset(folder / "embeddings", table, 2, id_column=names.get("id", "id"), settings=settings)
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    rows = [
        {
            "id": ids[row].as_py(),
            "neighbor_id": ids[int(other)].as_py(),
            "rank": rank,
            "score": scores[row, other],
            "ordinal": row,
            "neighbor_ordinal": int(other),
        }
        for row in range(len(TEXTS))
        for rank, other in enumerate(np.argsort(-scores[row], kind="stable")[:-1], 1)
    ]
    found = pa.Table.from_pylist(rows[::-1], neighbors_schema(id_type, id_type))
    return embeddings, write_dataset(folder / "neighbors", found, 3)


POSITIVES = Examples((["the anchor"], ["the positive"]), np.array([1.0]), name="pairs")


@pytest.mark.parametrize(
    ("min_score", "expected"), [(-np.inf, [("a", "b"), ("c", "d"), ("e", "f")]), (0.8, [("a", "b"), ("c", "d")])]
)
def test_pairs(tmp_path, min_score, expected):
    table = pairs_table(("Same", "same ", 1), ("a", "b", 0.9), ("c", "d", 0.8), ("e", "f", 0.7))
    folder = write_dataset(tmp_path / "pairs", table, 2)
    for path in (folder, f"file://{folder}"):
        examples = examples_from_pairs(path, min_score=min_score)
        assert list(zip(*examples.texts, strict=True)) == expected
        assert (examples.labels, examples.name) == (None, path)
        assert examples.left_out == {"both texts are the same": 1}


def test_bad_pairs(tmp_path):
    with pytest.raises(DataError, match=r"no/pairs has no _manifest.json: the job that writes it has not finished"):
        examples_from_pairs(str(tmp_path / "no" / "pairs"))
    folder = write_dataset(tmp_path / "pairs", pairs_table(("a", "b", 0.5), ("c", None, 0.25), ("d", "D", 0.9)))
    with pytest.raises(DataError, match=r"part-0.parquet, row 1 \(counted from 0\): column 'text_b' is None, expected"):
        examples_from_pairs(folder)
    with pytest.raises(DataError, match=re.escape("has no pairs of two texts with a score of 0.8 or more, of 3")):
        examples_from_pairs(folder, min_score=0.8)
    assert len(examples_from_pairs(folder, min_score=0.5)) == 1
    write_manifest(tmp_path / "pairs", [])
    with pytest.raises(DataError, match="pairs is empty: the job found nothing to write"):
        examples_from_pairs(folder)
    (tmp_path / "pairs" / "_manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"_manifest.json is damaged"):
        examples_from_pairs(folder)
    other = write_dataset(tmp_path / "other", pa.table({"id": ["a"]}))
    with pytest.raises(DataError, match="has no column 'text_a'; it has: id"):
        examples_from_pairs(other)


@pytest.mark.parametrize("id_type", [pa.string(), pa.large_string(), pa.int64()])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["A NEAR ONE "]),  # 0.6 is below 0.7 - 0.05; 0.9 and 0.8 may be positives
        ({"margin": 0.15}, ["a far one"]),
        ({"margin": -0.15}, ["The Near One"]),
        ({"margin": -0.15, "per_pair": 9}, ["The Near One", "A NEAR ONE ", "a far one", "a farther one"]),
        ({"margin": -1, "per_pair": 2}, ["a near one", "The Near One"]),
        ({"ranks": (5, 5)}, ["a far one"]),
        ({"ranks": (6, 100), "per_pair": 3}, ["a farther one"]),
        # The copy of a text in other case is the same text.
        ({"margin": -1, "per_pair": 9}, ["a near one", "The Near One", "a far one", "a farther one"]),
    ],
)
def test_neighbors_become_negatives(tmp_path, id_type, options, expected):
    embeddings, neighbors = write_corpus(tmp_path, id_type)
    examples = mine_hard_negatives(embeddings, neighbors, POSITIVES, **options)
    assert examples.texts == (["the anchor"] * len(expected), ["the positive"] * len(expected), expected)
    assert (examples.labels, examples.name) == (None, "pairs with hard negatives")
    assert mine_hard_negatives(embeddings, neighbors, POSITIVES, **options).texts == examples.texts


def test_other_positives_are_no_negatives(tmp_path):
    embeddings, neighbors = write_corpus(tmp_path)
    columns = (["the anchor", "a far one", "the anchor"], ["the positive", "the anchor", "a near one"])
    examples = mine_hard_negatives(embeddings, neighbors, Examples(columns), per_pair=9)
    assert {text for anchor, _, text in zip(*examples.texts, strict=True) if anchor == "the anchor"} == {
        "The Near One",  # below the 0.9 of the third pair
        "a farther one",
    }


def test_pairs_without_a_negative_are_left_out(tmp_path):
    embeddings, neighbors = write_corpus(tmp_path)
    positives = Examples((["the anchor", "the anchor"], ["a farther one", "the positive"]))
    found = mine_hard_negatives(embeddings, neighbors, positives)
    assert found.texts[1] == ["the positive"]
    assert found.left_out == {"no hard negative: try more ranks or a smaller margin": 1}
    with pytest.raises(DataError, match="pairs: no pair has a hard negative: use more ranks or a smaller margin"):
        mine_hard_negatives(embeddings, neighbors, POSITIVES, ranks=(1, 3))


def test_columns_of_another_name_and_a_glob(tmp_path):
    embeddings, neighbors = write_corpus(tmp_path, id="number", text="body", embedding="vector")
    assert mine_hard_negatives(embeddings, neighbors, POSITIVES).texts[2] == ["A NEAR ONE "]
    embeddings, neighbors = write_corpus(tmp_path / "plain")
    assert mine_hard_negatives(f"{embeddings}/part-[01].parquet*", neighbors, POSITIVES).texts[2] == ["A NEAR ONE "]


def test_bad_corpora(tmp_path):
    embeddings, neighbors = write_corpus(tmp_path)
    with pytest.raises(DataError, match=r"pairs, row 1 \(counted from 0\): 'unheard of' is not a text of .*embeddings"):
        mine_hard_negatives(embeddings, neighbors, Examples((TEXTS[:2], ["a far one", "unheard of"]), name="pairs"))
    with pytest.raises(DataError, match=r"no/embeddings has no _manifest.json"):
        mine_hard_negatives(str(tmp_path / "no" / "embeddings"), neighbors, POSITIVES)
    with pytest.raises(DataError, match=r"no/neighbors has no _manifest.json"):
        mine_hard_negatives(embeddings, str(tmp_path / "no" / "neighbors"), POSITIVES)
    schema = neighbors_schema(pa.string(), pa.string())
    for column, row in (("neighbor_id", ("9", "x")), ("id", ("x", "9"))):
        table = pa.Table.from_pylist([dict(zip(schema.names, (*row, 1, 0.5, 0, 1), strict=True))], schema)
        with pytest.raises(DataError, match=f"has the {column} 'x', which is not in .*embeddings: mine them again"):
            mine_hard_negatives(embeddings, write_dataset(tmp_path / column, table), POSITIVES)
    flat = write_dataset(tmp_path / "flat", pa.table({"id": ["a"], "text": ["the anchor"], "embedding": [1.0]}))
    with pytest.raises(DataError, match="column 'embedding' is double, expected a vector in every row"):
        mine_hard_negatives(flat, neighbors, POSITIVES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": (0, 5)}, r"ranks must be the first and the last rank, from 1, got \(0, 5\)"),
        ({"ranks": (5, 4)}, "ranks must be the first and the last"),
        ({"margin": np.nan}, "margin must be a number, got nan"),
        ({"per_pair": 0}, "per_pair must be at least 1, got 0"),
        ({"positives": Examples((["a"],), name="single")}, "single has one text column"),
    ],
)
def test_bad_options(default_encoder, options, message):
    options = {"positives": POSITIVES} | options
    positives = options.pop("positives")
    with pytest.raises(DataError, match=message):
        mine_hard_negatives("no", "no", positives, **options)
    with pytest.raises(DataError, match=message):
        hard_negatives(default_encoder, positives, **options)


QUESTIONS = Examples(
    (
        ["Where is my parcel?", "How do I reset my password?", "Where is my parcel?", "Do you sell cheese?"],
        ["Your package is on its way.", "Use the link to set a new one.", "A parcel takes three days.", "No cheese."],
    ),
    name="questions",
)


def test_negatives_of_an_encoder(default_encoder):
    examples = hard_negatives(default_encoder, QUESTIONS, margin=0, per_pair=9)
    queries, passages = (default_encoder.encode(texts) for texts in QUESTIONS.texts)
    cosines = queries @ passages.T
    expected = []
    for row, query in enumerate(QUESTIONS.texts[0]):
        for other in np.argsort(-cosines[row]):
            known = QUESTIONS.texts[0][other] == query
            if not known and cosines[row, other] < cosines[row, row]:
                expected.append((query, QUESTIONS.texts[1][row], QUESTIONS.texts[1][other]))
    assert list(zip(*examples.texts, strict=True)) == expected
    assert len(expected) >= 6
    assert hard_negatives(default_encoder, QUESTIONS, margin=0, per_pair=9).texts == examples.texts
    one = hard_negatives(default_encoder, QUESTIONS, margin=0)
    assert [list(one.texts[0]).count(query) for query in dict.fromkeys(QUESTIONS.texts[0])] == [2, 1, 1]
    fewer = hard_negatives(default_encoder, QUESTIONS, margin=0.5, per_pair=9)
    assert set(zip(*fewer.texts, strict=True)) < set(expected)
    later = hard_negatives(default_encoder, QUESTIONS, margin=0, per_pair=9, ranks=(3, 4))
    assert set(zip(*later.texts, strict=True)) < set(expected)


def test_prompts_of_queries_and_passages(tmp_path):
    encoder = SentenceEncoder.load(make_transformer(tmp_path / "model"))
    rng = np.random.default_rng(0)
    words = ["quick", "brown", "fox", "lazy", "dog", "man", "flute", "parcel"]
    columns = tuple([" ".join(rng.choice(words, 4)) + f" {row}" for row in range(30)] for _ in range(2))
    options = {"margin": 0, "ranks": (1, 30), "per_pair": 30}
    plain = hard_negatives(encoder, Examples(columns), **options)
    prompted = hard_negatives(encoder, Examples(columns), prompts=("query: ", "passage: "), **options)
    prefixed = Examples(
        tuple([kind + text for text in column] for kind, column in zip(("query: ", "passage: "), columns, strict=True))
    )
    by_hand = hard_negatives(encoder, prefixed, **options)
    assert plain.texts != prompted.texts
    assert prompted.texts[2] == [text.removeprefix("passage: ") for text in by_hand.texts[2]]


class Line:
    """Encodes texts, which are numbers, as angles: the cosine of two is that of their difference."""

    def encode(self, texts, prompt=None, progress=False):
        angles = np.array([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_a_pair_without_a_negative_within_ranks_gets_the_nearest_behind():
    # The positive of 0 is at 0.8; nearer ones may be positives too. The others' positives are beside them.
    examples = Examples((["0", "0.1", "0.2", "0.9", "1"], ["0.8", "0.11", "0.21", "0.91", "1.01"]), name="line")
    found = hard_negatives(Line(), examples, ranks=(1, 2), margin=0.01)
    rows = dict(zip(found.texts[0], found.texts[2], strict=True))
    assert rows["0"] == "0.91"  # of those with a cosine below that of 0.8 the nearest, at rank 4
    assert found.left_out == {}
    wide = hard_negatives(Line(), examples, ranks=(1, 5), margin=0.01)
    assert dict(zip(wide.texts[0], wide.texts[2], strict=True))["0"] == "0.91"
    some = hard_negatives(Line(), examples, ranks=(1, 2), margin=0.3)
    assert some.left_out == {"no hard negative: try more ranks or a smaller margin": 5 - len(some)}
    assert 0 < len(some) < 5


def test_no_negatives(default_encoder):
    with pytest.raises(DataError, match="pairs: no pair has a hard negative"):
        hard_negatives(default_encoder, POSITIVES)


@pytest.fixture
def own_threads():
    """Restores the number of threads, which jobs set: later tests in this process would be slower."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_from_the_jobs_to_triplets(tmp_path, own_threads):
    """The functions read the outputs of embed and mine."""
    demo = Path(__file__).parents[1] / "demo" / "sentences"
    table = pa.concat_tables([pq.read_table(path) for path in sorted(demo.glob("*.parquet"))]).slice(0, 120)
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    embed.run(EmbedOptions(input=[f"{tmp_path}/in/*.parquet"], output=str(tmp_path / "out")))
    mine.run(MineOptions(input=str(tmp_path / "out/embeddings"), output=str(tmp_path / "out"), top_k=20))
    pairs = examples_from_pairs(str(tmp_path / "out/pairs"), min_score=0.7)
    triplets = mine_hard_negatives(str(tmp_path / "out/embeddings"), str(tmp_path / "out/neighbors"), pairs)
    assert 0 < len(triplets) <= len(pairs)
    assert len(triplets.texts) == 3
    known = {frozenset(pair) for pair in zip(*pairs.texts, strict=True)}
    for anchor, positive, negative in zip(*triplets.texts, strict=True):
        assert frozenset((anchor, positive)) in known
        assert frozenset((anchor, negative)) not in known
        assert len({anchor.casefold(), positive.casefold(), negative.casefold()}) == 3


def test_a_part_that_was_changed_is_refused(tmp_path):
    folder = write_dataset(tmp_path / "pairs", pairs_table(("a", "b", 0.5), ("c", "d", 0.25)))
    path = tmp_path / "pairs/part-0.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"part-0.parquet has changed since it was written"):
        examples_from_pairs(folder)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "5",
        "{}",
        '{"parts": {"name": "a"}}',
        '{"parts": [{}]}',
        '{"parts": [{"name": 7, "rows": 1, "sha256": "x"}]}',
        '{"parts": [{"name": "../other.parquet", "rows": 1, "sha256": "x"}]}',
        '{"parts": [{"name": "/etc/passwd", "rows": 1, "sha256": "x"}]}',
    ],
)
def test_a_manifest_that_lists_no_parts_of_its_own(tmp_path, capsys, content):
    write_dataset(tmp_path / "pairs", pairs_table(("a", "b", 0.9)))
    (tmp_path / "pairs" / "_manifest.json").write_text(content)
    flags = ["--model", "default", "--data", str(tmp_path / "pairs"), "--output", str(tmp_path / "out")]
    assert main(["train", *flags]) == 2
    output = capsys.readouterr().err
    assert "_manifest.json" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert not (tmp_path / "out").exists()
