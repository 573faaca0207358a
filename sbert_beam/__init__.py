"""The public names of sbert-beam: `from sbert_beam import SentenceEncoder, EncodeSentences, FindNeighbors`.

Each name is imported when it is first used, so that `import sbert_beam` is fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sbert_beam.packages import check_packages

if TYPE_CHECKING:
    from sbert_core.encoder.cross_encoder import CrossEncoder
    from sbert_core.encoder.quantization import calibrate, quantize
    from sbert_core.encoder.sentence_encoder import Encoded, SentenceEncoder
    from sbert_core.errors import DataError, JobError, ModelError, SbertBeamError, TextError
    from sbert_core.evaluation.run_tasks import evaluate
    from sbert_core.neighbors.in_memory import Neighbors, find_neighbors, mine_paraphrases
    from sbert_core.neighbors.pairs import Pairs
    from sbert_core.training.loop import train
    from sbert_core.training.plan import TrainPlan
    from transforms.clusters.cluster_corpus import ClusterCorpus
    from transforms.dataset.published import read_dataset
    from transforms.dataset.read_sentences import ReadSentences
    from transforms.encode.encode_rows import EncodeRows
    from transforms.encode.encode_sentences import EncodeSentences
    from transforms.encode.model_handler import SentenceEmbeddings, SentenceEncoderHandler
    from transforms.neighbors.duplicates import GroupDuplicates
    from transforms.neighbors.exact import FindNeighbors
    from transforms.neighbors.paraphrases import MineParaphrases
    from transforms.neighbors.routed import FindRoutedNeighbors
    from transforms.neighbors.search_corpus import SearchCorpus

_MODULES = {
    "sbert_core.encoder.cross_encoder": ["CrossEncoder"],
    "sbert_core.encoder.quantization": ["calibrate", "quantize"],
    "sbert_core.encoder.sentence_encoder": ["Encoded", "SentenceEncoder"],
    "sbert_core.errors": ["DataError", "JobError", "ModelError", "SbertBeamError", "TextError"],
    "sbert_core.evaluation.run_tasks": ["evaluate"],
    "sbert_core.neighbors.in_memory": ["Neighbors", "find_neighbors", "mine_paraphrases"],
    "sbert_core.neighbors.pairs": ["Pairs"],
    "sbert_core.training.loop": ["train"],
    "sbert_core.training.plan": ["TrainPlan"],
    "transforms.clusters.cluster_corpus": ["ClusterCorpus"],
    "transforms.dataset.published": ["read_dataset"],
    "transforms.dataset.read_sentences": ["ReadSentences"],
    "transforms.encode.encode_rows": ["EncodeRows"],
    "transforms.encode.encode_sentences": ["EncodeSentences"],
    "transforms.encode.model_handler": ["SentenceEmbeddings", "SentenceEncoderHandler"],
    "transforms.neighbors.duplicates": ["GroupDuplicates"],
    "transforms.neighbors.exact": ["FindNeighbors"],
    "transforms.neighbors.paraphrases": ["MineParaphrases"],
    "transforms.neighbors.routed": ["FindRoutedNeighbors"],
    "transforms.neighbors.search_corpus": ["SearchCorpus"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ClusterCorpus",
    "CrossEncoder",
    "DataError",
    "EncodeRows",
    "EncodeSentences",
    "Encoded",
    "FindNeighbors",
    "FindRoutedNeighbors",
    "GroupDuplicates",
    "JobError",
    "MineParaphrases",
    "ModelError",
    "Neighbors",
    "Pairs",
    "ReadSentences",
    "SbertBeamError",
    "SearchCorpus",
    "SentenceEmbeddings",
    "SentenceEncoder",
    "SentenceEncoderHandler",
    "TextError",
    "TrainPlan",
    "calibrate",
    "evaluate",
    "find_neighbors",
    "mine_paraphrases",
    "quantize",
    "read_dataset",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: torch and Beam take seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sbert_beam' has no attribute {name!r}")
    check_packages()
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
