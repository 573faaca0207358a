"""Text augmentation: words deleted, swapped or replaced by synonyms, and back-translation.

An edit maps texts to as many texts. Its random numbers come from the generator it is given only.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import regex
import torch
import transformers

from sbert_core.clusters.names.words import CHARACTER, UNSPACED_CLASS
from sbert_core.data.tables import short
from sbert_core.encoder.device import choose_device
from sbert_core.encoder.model_source import find_model
from sbert_core.encoder.pretrained import silence_transformers
from sbert_core.encoder.safety import check_folder
from sbert_core.errors import DataError, ModelError

TextEdit = Callable[[list[str], np.random.Generator], list[str]]
Translate = Callable[[list[str]], list[str]]
Synonyms = Mapping[str, Sequence[str]]

_LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--[{UNSPACED_CLASS}]]"
_JOINER = r"(?:['\u2019-]|(?<=\p{N})[.,:](?=\p{N}))"  # don't, e-mail, 3.5
_WORD = regex.compile(
    rf"(?P<unspaced>[{UNSPACED_CLASS}][{UNSPACED_CLASS}\p{{M}}ー]*)|{_LETTER}+(?:{_JOINER}{_LETTER}+)*", regex.VERSION1
)
MAX_SWAPS = 1000
_TRANSLATION_BATCH = 32  # texts


@dataclasses.dataclass(frozen=True)
class Augmenter:
    """Applies edits one after the other, each to a random part of the texts of the chosen columns."""

    edits: tuple[TextEdit, ...]
    probability: float = 0.5  # of applying an edit to a text
    columns: tuple[int, ...] | None = None  # counted from 0; None: all

    def __post_init__(self) -> None:
        if not self.edits:
            raise DataError("an augmenter has no edits: give it one, or leave it out")
        _check_share("probability", self.probability)

    def __call__(self, views: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
        """The columns of a batch, edited; a text that would become empty stays as it is."""
        chosen = range(len(views)) if self.columns is None else self.columns
        if any(not 0 <= column < len(views) for column in chosen):
            raise DataError(f"columns to augment are {self.columns}, but there are {len(views)}: count them from 0")
        return [self._change(texts, rng) if column in chosen else texts for column, texts in enumerate(views)]

    def _change(self, texts: list[str], rng: np.random.Generator) -> list[str]:
        changed = list(texts)
        for edit in self.edits:
            rows = np.flatnonzero(rng.random(len(texts)) < self.probability).tolist()
            for row, text in zip(rows, edit([changed[row] for row in rows], rng), strict=True):
                changed[row] = text if text.strip() else changed[row]
        return changed


@dataclasses.dataclass(frozen=True)
class _EachText:
    """An edit of one text at a time; a class, not a closure, so that it can be pickled."""

    change: Callable[[str, np.random.Generator], str]

    def __call__(self, texts: list[str], rng: np.random.Generator) -> list[str]:
        return [self.change(text, rng) for text in texts]


def delete_words(p: float = 0.1) -> TextEdit:
    """Deletes each word with probability `p`, but never all of them."""
    _check_share("p", p)
    return _EachText(functools.partial(_delete, p=p))


def swap_words(n: int = 1) -> TextEdit:
    """Swaps two random words, `n` times; a text of one word stays as it is."""
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_SWAPS:
        raise DataError(f"swaps must be a whole number from 1 to {MAX_SWAPS}, got {short(n)}")
    return _EachText(functools.partial(_swap, n=n))


def replace_synonyms(synonyms: Synonyms, p: float = 0.1) -> TextEdit:
    """Replaces words and multi-word expressions that are in `synonyms` with probability `p` by a random synonym.

    Case is ignored; the synonym of a capitalised word is capitalised. Longer expressions go first.
    """
    _check_share("p", p)
    folded = {_fold(word): tuple(others) for word, others in synonyms.items()}
    if not folded or not all(folded.values()):
        raise DataError("the synonyms are empty: expected words, each with at least one synonym")
    return _EachText(functools.partial(_replace, synonyms=folded, p=p, longest=max(len(_words(key)) for key in folded)))


def back_translate(translate: Translate) -> TextEdit:
    """Replaces texts by the result of `translate`: a translation into another language and back."""
    return functools.partial(_translate, translate=translate)


def _words(text: str) -> list[tuple[int, int]]:
    """The spans of the words of a text; of its characters in scripts without spaces between words."""
    spans: list[tuple[int, int]] = []
    for word in _WORD.finditer(text):
        spans += (
            [character.span() for character in CHARACTER.finditer(text, *word.span())]
            if word["unspaced"]
            else [word.span()]
        )
    return spans


def _delete(text: str, rng: np.random.Generator, p: float) -> str:
    spans = _words(text)
    is_deleted = rng.random(len(spans)) < p
    if is_deleted.all():
        return text
    kept = ""
    start = 0
    for (begin, end), deleted in zip(spans, is_deleted.tolist(), strict=True):
        # The space before a word is deleted with it: "my parcel, please" becomes "my, please".
        kept += text[start:begin].rstrip() if deleted else text[start:end]
        start = end
    return (kept + text[start:]).strip()


def _swap(text: str, rng: np.random.Generator, n: int) -> str:
    spans = _words(text)
    if len(spans) < 2:
        return text
    order = np.arange(len(spans))
    for _ in range(n):
        pair = rng.choice(len(spans), 2, replace=False)
        order[pair] = order[pair[::-1]]
    return _write(text, spans, [text[slice(*spans[word])] for word in order])


def _replace(text: str, rng: np.random.Generator, synonyms: Synonyms, p: float, longest: int) -> str:
    spans = _words(text)
    places: list[tuple[int, int]] = []
    words: list[str] = []
    first = 0
    while first < len(spans):
        stops = range(min(first + longest, len(spans)), first, -1)
        stop = next((stop for stop in stops if _fold(text[spans[first][0] : spans[stop - 1][1]]) in synonyms), None)
        if stop is not None and rng.random() < p:
            place = spans[first][0], spans[stop - 1][1]
            others = synonyms[_fold(text[slice(*place)])]
            places.append(place)
            words.append(_match_case(text[slice(*place)], others[int(rng.integers(len(others)))]))
        first = stop or first + 1
    return _write(text, places, words)


def _write(text: str, places: Sequence[tuple[int, int]], words: Sequence[str]) -> str:
    """The text with the spans `places` replaced by `words`."""
    written = ""
    start = 0
    for (begin, end), word in zip(places, words, strict=True):
        written += text[start:begin] + word
        start = end
    return written + text[start:]


def _match_case(word: str, other: str) -> str:
    """`other`, capitalised if `word` is."""
    return other[:1].upper() + other[1:] if word[:1].isupper() else other


def _fold(word: str) -> str:
    return " ".join(word.casefold().split())


def _translate(texts: list[str], rng: np.random.Generator, translate: Translate) -> list[str]:
    translated = list(translate(texts)) if texts else []
    if len(translated) != len(texts) or not all(isinstance(text, str) for text in translated):
        raise DataError(f"back-translation of {len(texts)} texts gave {short(translated)}: expected as many texts")
    return translated


def _check_share(name: str, value: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise DataError(f"{name} must be from 0 to 1, got {short(value)}")


def read_synonyms(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Reads synonyms: a JSON object of lists (.json), or lines of a word and its synonyms with tabs between (.tsv)."""
    if not isinstance(path, str | os.PathLike):
        raise DataError(f"synonyms must be the name of a .json or .tsv file, got {short(path)}")
    file = Path(path)
    try:
        content = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError, as what is not UTF-8
        raise DataError(f"the synonyms {file} cannot be read: {error}") from error
    if file.suffix == ".json":
        synonyms = _check_json(file, content)
    elif file.suffix == ".tsv":
        synonyms = {}
        for number, line in enumerate(content.splitlines()):
            word, *others = (part.strip() for part in line.split("\t"))
            if not line.strip():
                continue
            if not word or not others or not all(others):
                raise DataError(
                    f"{file}, line {number} (counted from 0) is {short(line)}: expected a word and its synonyms, "
                    "with tabs between"
                )
            synonyms.setdefault(word, []).extend(others)
    else:
        raise DataError(f"{file} has an unknown suffix: expected .json or .tsv")
    if not synonyms:
        raise DataError(f"{file} has no synonyms in it")
    return synonyms


def _check_json(file: Path, content: str) -> dict[str, list[str]]:
    try:
        synonyms: Any = json.loads(content)
    except ValueError as error:
        raise DataError(f"{file} is not JSON: {error}") from error
    if not isinstance(synonyms, dict):
        raise DataError(f"{file} holds {short(synonyms)}: expected an object with a list of synonyms per word")
    for word, others in synonyms.items():
        listed = (
            isinstance(others, list) and others and all(isinstance(other, str) and other.strip() for other in others)
        )
        if not listed or not word.strip():
            raise DataError(f"{file}: the synonyms of {word!r} are {short(others)}, expected a list of texts")
    return synonyms


def seq2seq_translator(
    forward: str | os.PathLike[str], back: str | os.PathLike[str], *, device: str = "auto", beams: int = 1
) -> Translate:
    """Translates into another language and back with two sequence-to-sequence models, for `back_translate`.

    Models are folders, URIs or hub names, as for `SentenceEncoder.load`; their weights must be safetensors, and code in
    model folders is not run. The same texts always give the same translations.
    """
    models = [_Seq2Seq(forward, device, beams), _Seq2Seq(back, device, beams)]
    return lambda texts: models[1](models[0](texts))


class _Seq2Seq:
    """A translation model."""

    def __init__(self, name: str | os.PathLike[str], device: str, beams: int) -> None:
        folder = find_model(name)
        check_folder(folder)
        self.device, self.beams = choose_device(device), beams
        try:
            with silence_transformers():
                self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
                model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                    folder, local_files_only=True, use_safetensors=True, dtype=torch.float32, output_loading_info=True
                )
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"{folder} is not a translation model: {str(error).strip().splitlines()[0]}") from error
        if info["missing_keys"]:
            raise ModelError(
                f"{folder}: the weights lack {len(info['missing_keys'])} tensors of {type(model).__name__}"
            )
        self.model = model.to(self.device).eval()
        self.longest = min(self.tokenizer.model_max_length, 512)  # 10**30 for a tokenizer without a limit

    @torch.inference_mode()
    def __call__(self, texts: list[str]) -> list[str]:
        translated: list[str] = []
        for start in range(0, len(texts), _TRANSLATION_BATCH):
            inputs = self.tokenizer(
                texts[start : start + _TRANSLATION_BATCH],
                padding=True,
                truncation=True,
                max_length=self.longest,
                return_tensors="pt",
            ).to(self.device)
            with silence_transformers():  # transformers warns that max_new_tokens overrides the model's settings
                ids = self.model.generate(
                    input_ids=inputs["input_ids"],
                    attention_mask=inputs["attention_mask"],
                    do_sample=False,
                    num_beams=self.beams,
                    max_new_tokens=self.longest,
                )
            translated += self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return translated
