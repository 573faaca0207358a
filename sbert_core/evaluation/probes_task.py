"""Probes task: a typo should change the vector of a sentence less than a change of its meaning.

The edits are rules for English; sentences to which a rule does not apply are counted and not used.
"""

from collections.abc import Callable, Sequence

import numpy as np

from sbert_core.errors import DataError
from sbert_core.evaluation.edits import change_number, find_names, make_typo, negate, reorder_words, swap_entity
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.neighbors.cosine import unit_rows

HARMLESS = "typo"
PROBES = ("typo", "negation", "number", "entity", "word_order")

_EDITS: dict[str, Callable[[str], str | None]] = {
    "typo": make_typo,
    "negation": negate,
    "number": change_number,
    "word_order": reorder_words,
}


def make_probes(sentences: Sequence[str]) -> dict[str, list[str | None]]:
    """For each probe the edited sentences, None where the edit does not apply.

    An entity swap uses the next name of the following sentences; after the last sentence, those from the beginning.
    """
    edited = {name: [edit(sentence) for sentence in sentences] for name, edit in _EDITS.items()}
    names = [(row, name) for row, sentence in enumerate(sentences) for name in find_names(sentence)]
    ahead = [name for _, name in names]
    places = np.searchsorted([row for row, _ in names], np.arange(len(sentences)), side="right").tolist()
    window = 50  # the same name may occur many times in succession
    edited["entity"] = [
        swap_entity(sentence, (ahead[place : place + window] + ahead[: max(0, place + window - len(ahead))]))
        for sentence, place in zip(sentences, places, strict=True)
    ]
    return {name: edited[name] for name in PROBES}


def evaluate_probes(
    encoder: Encode, sentences: Sequence[str], *, name: str = "data", model: str = "model"
) -> Evaluation:
    """The cosine of edited sentences with their originals.

    `typo_nearer` is the share of cases, each a sentence and an edit that changes its meaning, in which the sentence
    with a typo is strictly nearer to the original; every probe is a part with its own, and with its mean `cosine`.
    A case needs both edits to apply. The same sentence counts once.
    """
    texts = list(dict.fromkeys(sentences))
    edited = make_probes(texts)
    edited_texts = [text for column in edited.values() for text in column if text is not None]
    if not edited_texts:
        raise DataError(f"{name}: none of the {len(texts)} sentences can be edited: use English sentences")
    originals, has_direction = unit_rows(encoder.encode(texts))
    changed = iter(unit_rows(encoder.encode(edited_texts))[0])
    cosines = {probe: np.full(len(texts), np.nan) for probe in edited}
    for probe, column in edited.items():
        for row in (row for row, text in enumerate(column) if text is not None):
            cosine = float(originals[row] @ next(changed))
            cosines[probe][row] = cosine if has_direction[row] else np.nan
    parts = []
    wins = cases = 0
    for probe in edited:
        scores = {"cosine": _mean(cosines[probe])}
        counts = {"sentences": len(texts), "used": int(np.isfinite(cosines[probe]).sum())}
        counts["not_applicable"] = counts["sentences"] - counts["used"]
        if probe != HARMLESS:
            both = np.isfinite(cosines[probe]) & np.isfinite(cosines[HARMLESS])
            nearer = cosines[HARMLESS][both] > cosines[probe][both]
            scores["typo_nearer"] = float(nearer.mean()) if len(nearer) else np.nan
            counts["cases"] = len(nearer)
            wins, cases = wins + int(nearer.sum()), cases + len(nearer)
        parts.append(Evaluation("probes", probe, model, "cosine", scores, counts))
    scores = {"typo_nearer": wins / cases if cases else np.nan}
    return Evaluation(
        "probes", name, model, "typo_nearer", scores, {"sentences": len(texts), "cases": cases}, parts=parts
    )


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")
