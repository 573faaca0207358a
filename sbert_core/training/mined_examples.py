"""Training examples from the outputs of jobs: mined pairs as positives, neighbours as hard negatives."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.data.dataset_reader import FSSPEC_DATASETS
from sbert_core.data.examples import Examples, read_texts
from sbert_core.data.manifest import Manifest
from sbert_core.data.schema import ID, TEXT
from sbert_core.data.tables import Table, read_table, short
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import unit_rows
from sbert_core.neighbors.in_memory import find_neighbors

DEFAULT_RANKS = (1, 50)
DEFAULT_MARGIN = 0.05
MAX_MARGIN = 1e9
MAX_RANK = 1_000_000_000
_MAX_FARTHER_PASSAGES = 100  # that are considered after the last rank


def examples_from_pairs(folder: str, *, min_score: float = -np.inf) -> Examples:
    """The `pairs/` of a mine job as (anchor, positive), best first.

    Pairs of the same text, ignoring case, are left out.
    """
    table = _read_dataset(folder, ["text_a", "text_b", "score"])
    rows = np.flatnonzero(table.columns["score"].to_numpy() >= min_score)
    first, second = (read_texts(table, name, rows) for name in ("text_a", "text_b"))
    different = [row for row in range(len(rows)) if _key(first[row]) != _key(second[row])]
    if not different:
        raise DataError(f"{folder} has no pairs of two texts with a score of {min_score:g} or more, of {len(table)}")
    same = len(rows) - len(different)
    left_out = {"both texts are the same": same} if same else {}
    return Examples((first, second), name=folder, left_out=left_out).take(np.array(different))


def mine_hard_negatives(
    embeddings: str,
    neighbors: str,
    positives: Examples,
    *,
    ranks: tuple[int, int] = DEFAULT_RANKS,
    margin: float = DEFAULT_MARGIN,
    per_pair: int = 1,
) -> Examples:
    """Hard negatives for pairs of texts of a corpus, from its `neighbors/`: (anchor, positive, negative).

    A negative is a neighbour of the anchor whose rank is within `ranks` (first and last, from 1) and whose score is
    lower than that of the positive by more than `margin`: a nearer one may be a positive without a label. It is never
    the anchor, nor a text that `positives` pairs with it. Each pair gets up to `per_pair` rows, nearest negative
    first; pairs without a negative are left out and counted in `left_out`.

    Args:
        embeddings: the `embeddings/` that were mined, or a glob of Parquet files.
        neighbors: the `neighbors/` that were found.
        positives: anchors and positives in the first two columns; other columns and labels are dropped.
        ranks: first and last rank of negatives.
        margin: minimum difference of cosines.
        per_pair: maximum number of rows per pair.
    """
    _check(positives, ranks, margin, per_pair)
    ids, texts, vectors = _read_corpus(embeddings)
    row_of = {text: row for row, text in reversed(list(enumerate(texts)))}  # of copies, the first
    anchors, partners = (_rows_of(column, row_of, positives.name, embeddings) for column in positives.texts[:2])

    table = _read_dataset(neighbors, ["id", "neighbor_id", "rank", "score"]).columns
    table = table.filter(pc.and_(pc.greater_equal(table["rank"], ranks[0]), pc.less_equal(table["rank"], ranks[1])))
    own, found = (_index_in(table[name], ids) for name in ("id", "neighbor_id"))
    for name, places in (("id", own), ("neighbor_id", found)):
        if (places < 0).any():
            unknown = table[name][int(np.argmax(places < 0))].as_py()
            raise DataError(f"{neighbors} has the {name} {unknown!r}, which is not in {embeddings}: mine them again")
    order = np.lexsort((table["rank"].to_numpy(), own))
    found, scores = found[order], table["score"].to_numpy()[order]
    ends = np.bincount(own, minlength=len(texts)).cumsum()
    spans = [slice(ends[row - 1] if row else 0, ends[row]) for row in anchors]
    limits = (vectors[anchors] * vectors[partners]).sum(axis=1) - margin
    return _add_negatives(positives, [(found[span], scores[span]) for span in spans], texts, limits, per_pair)


def hard_negatives(
    encoder: SentenceEncoder,
    examples: Examples,
    *,
    ranks: tuple[int, int] = DEFAULT_RANKS,
    margin: float = DEFAULT_MARGIN,
    per_pair: int = 1,
    prompts: tuple[str | None, str | None] = (None, None),
    progress: bool = False,
) -> Examples:
    """Hard negatives by the vectors of an encoder, as in E5: (query, passage, negative).

    Negatives are chosen among the passages of all rows. A pair without a negative within `ranks` gets the nearest one
    after them: its positive is so far away that all passages within `ranks` may be positives. `prompts` are put before
    queries and passages; None: the encoder's own, if it has one.
    """
    _check(examples, ranks, margin, per_pair)
    passages = list(dict.fromkeys(examples.texts[1]))
    row_of = {text: row for row, text in enumerate(passages)}
    queries, _ = unit_rows(encoder.encode(examples.texts[0], prompt=prompts[0], progress=progress))
    vectors, _ = unit_rows(encoder.encode(passages, prompt=prompts[1], progress=progress))
    nearest = find_neighbors(queries, min(ranks[1], len(passages)), corpus=vectors)
    partners = vectors[[row_of[text] for text in examples.texts[1]]]
    limits = (queries * partners).sum(axis=1) - margin
    candidates = list(zip(nearest.indices[:, ranks[0] - 1 :], nearest.scores[:, ranks[0] - 1 :], strict=True))
    last = nearest.scores[:, -1] if nearest.scores.shape[1] == ranks[1] else np.full(len(queries), -np.inf)
    farther = _FartherPassages(queries, vectors, np.minimum(last, limits))
    return _add_negatives(examples, candidates, passages, limits, per_pair, farther)


@dataclasses.dataclass(frozen=True, eq=False)
class _FartherPassages:
    """Passages farther away than the last rank."""

    queries: np.ndarray
    passages: np.ndarray
    bounds: np.ndarray  # (queries,): only lower scores count

    def __call__(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and scores of the nearest of these passages, nearest first."""
        scores = self.passages @ self.queries[row]
        found = np.flatnonzero(scores < self.bounds[row])
        if len(found) > _MAX_FARTHER_PASSAGES:
            found = found[np.argpartition(-scores[found], _MAX_FARTHER_PASSAGES)[:_MAX_FARTHER_PASSAGES]]
        found = found[np.argsort(-scores[found], kind="stable")]
        return found, scores[found]


def _add_negatives(
    positives: Examples,
    candidates: Sequence[tuple[np.ndarray, np.ndarray]],  # of each pair: numbers and scores of texts, nearest first
    texts: Sequence[str],
    limits: np.ndarray,  # (pairs,): a negative has a lower score
    per_pair: int,
    farther: Callable[[int], tuple[np.ndarray, np.ndarray]] | None = None,  # more candidates, for a pair without any
) -> Examples:
    partners: dict[str, set[str]] = {}
    for anchor, positive in zip(*positives.texts[:2], strict=True):
        partners.setdefault(_key(anchor), set()).add(_key(positive))
        partners.setdefault(_key(positive), set()).add(_key(anchor))
    rows: list[int] = []
    negatives: list[str] = []
    n_without = 0
    for pair, (found, scores) in enumerate(candidates):
        anchor = _key(positives.texts[0][pair])
        excluded = partners[anchor] | {anchor}
        chosen = _choose(found[scores < limits[pair]], texts, excluded, per_pair)
        if not chosen and farther is not None:
            found, scores = farther(pair)
            chosen = _choose(found[scores < limits[pair]], texts, excluded, 1)
        n_without += not chosen
        rows += [pair] * len(chosen)
        negatives += chosen
    if not rows:
        raise DataError(f"{positives.name}: no pair has a hard negative: use more ranks or a smaller margin")
    pairs = positives.take(np.array(rows))
    left_out = dict(positives.left_out)
    if n_without:
        left_out["no hard negative: try more ranks or a smaller margin"] = n_without
    return Examples((*pairs.texts[:2], negatives), name=f"{positives.name} with hard negatives", left_out=left_out)


def _choose(numbers: np.ndarray, texts: Sequence[str], excluded: set[str], count: int) -> list[str]:
    """The first `count` texts that are not excluded, each once."""
    chosen: dict[str, str] = {}
    for number in numbers.tolist():
        key = _key(texts[number])
        if key not in excluded:
            chosen.setdefault(key, texts[number])
        if len(chosen) == count:
            break
    return list(chosen.values())


def _key(text: str) -> str:
    return text.strip().casefold()


def _check(positives: Examples, ranks: tuple[int, int], margin: float, per_pair: int) -> None:
    if len(positives.texts) < 2:
        raise DataError(f"{positives.name} has one text column, but hard negatives need pairs: name two columns")
    pair = isinstance(ranks, tuple | list) and len(ranks) == 2 and all(map(_is_whole, ranks))
    if not pair or not 1 <= ranks[0] <= ranks[1] <= MAX_RANK:
        raise DataError(f"ranks must be the first and the last rank, from 1, got {ranks}")
    if not isinstance(margin, int | float) or isinstance(margin, bool) or not abs(margin) <= MAX_MARGIN:
        raise DataError(f"margin must be a number, got {short(margin)}")
    if not _is_whole(per_pair) or per_pair < 1:
        raise DataError(f"per_pair must be at least 1, got {short(per_pair)}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_dataset(folder: str, columns: Sequence[str]) -> Table:
    """Columns of the output of a job, checked against its manifest."""
    if not FSSPEC_DATASETS.read_manifest(folder).parts:
        raise DataError(f"{folder} is empty: the job found nothing to write")
    return read_table(folder, columns)


def _read_corpus(path: str) -> tuple[pa.Array, list[str], np.ndarray]:
    """The ids, texts and unit vectors of a corpus."""
    manifest = Manifest() if "*" in path or path.endswith(".parquet") else FSSPEC_DATASETS.read_manifest(path)
    settings = manifest.settings
    names = [manifest.id_column or ID, settings.get("text_column", TEXT), settings.get("embedding", "embedding")]
    columns = read_table(path, names).columns
    ids, texts, vectors = (columns[name].combine_chunks() for name in names)
    if not pa.types.is_fixed_size_list(vectors.type) or vectors.null_count:
        raise DataError(f"{path}: column {names[2]!r} is {vectors.type}, expected a vector in every row")
    values = vectors.flatten().to_numpy(zero_copy_only=False)
    return ids, texts.to_pylist(), unit_rows(values.reshape(len(ids), -1))[0]


def _rows_of(texts: Sequence[str], row_of: dict[str, int], name: str, corpus: str) -> np.ndarray:
    missing = next((number for number, text in enumerate(texts) if text not in row_of), None)
    if missing is not None:
        raise DataError(
            f"{name}, row {missing} (counted from 0): {texts[missing]!r} is not a text of {corpus}: use its texts"
        )
    return np.array([row_of[text] for text in texts], np.int64)


def _index_in(values: pa.ChunkedArray, ids: pa.Array) -> np.ndarray:
    """The place of each value in `ids`, -1 if it is not there."""
    return pc.fill_null(pc.index_in(values.cast(ids.type), value_set=ids), -1).to_numpy().astype(np.int64)
