"""Objectives that rank the positive of a text first among all texts of the batch."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert_core.errors import DataError
from sbert_core.training.losses.distances import all_cosines
from sbert_core.training.losses.objective import Objective, check_between


class MultipleNegatives(Objective):
    """Ranks each query's own passage first among all passages of the batch (InfoNCE).

        loss = mean over rows i of -log( exp(s cos(q_i, p_i)) / sum over passages x of exp(s cos(q_i, x)) )

    The columns are query, positive, and any number of hard negatives; the passages x are the positives and the
    hard negatives of all rows. s is `scale` (20 unless given), or 1 / `temperature`. With `symmetric` the loss is
    the mean of this and of its mirror: each positive ranks its own query first among all queries.
    """

    columns: tuple[int, int | None] = (2, None)
    distinct = True
    default_scale = 20.0

    def __init__(
        self, *, scale: float | None = None, temperature: float | None = None, symmetric: bool = False
    ) -> None:
        super().__init__()
        if scale is not None and temperature is not None:
            raise DataError(
                "options 'scale' and 'temperature' are the same setting (scale = 1 / temperature): give one"
            )
        if temperature is not None:
            scale = 1 / check_between("temperature", temperature, 0, float("inf"))
        self.scale = self.default_scale if scale is None else check_between("scale", scale, 0, float("inf"))
        if not isinstance(symmetric, bool):
            raise DataError(f"option 'symmetric' is {symmetric!r}: use true or false")
        self.symmetric = symmetric

    def logits(self, vectors: list[Tensor]) -> Tensor:
        """S cos(q_i, x): (n, n * (columns - 1)), the positive of row i in column i."""
        queries, *passages = vectors
        return self.scale * all_cosines(queries, torch.cat(passages))

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Cross-entropy of the right passage; there are no labels."""
        scores = self.logits(vectors)
        own = torch.arange(len(scores), device=scores.device)
        loss = F.cross_entropy(scores, own)
        if not self.symmetric:
            return loss
        return (loss + F.cross_entropy(scores[:, : len(scores)].T, own)) / 2


class SimCSE(MultipleNegatives):
    """Unsupervised SimCSE: a sentence, embedded twice with different dropout, finds itself in the batch.

        loss = mean over rows i of -log( exp(s cos(h_i, h'_i)) / sum over rows j of exp(s cos(h_i, h'_j)) )

    One text column; s = 20 is the paper's temperature of 0.05. Without dropout an encoder is only trained
    to spread its vectors.
    """

    columns = (1, 1)

    def views(self, texts: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
        """The one column, twice."""
        return [texts[0], texts[0]]


class SupervisedSimCSE(MultipleNegatives):
    """Supervised SimCSE: a premise finds the hypothesis it entails, among all entailed and contradicted ones.

        loss = mean over rows i of -log( exp(s cos(h_i, e_i)) / sum over j and x in (e_j, c_j) of exp(s cos(h_i, x)) )

    The columns are premise h, entailment e, contradiction c; s = 20 is the paper's temperature of 0.05.
    """

    columns = (3, 3)


class E5(MultipleNegatives):
    """E5: a query finds its passage at a low temperature among many in-batch negatives.

        loss = mean over rows i of -log( exp(cos(q_i, p_i) / t) / sum over passages x of exp(cos(q_i, x) / t) )

    t is 0.01 unless given. Hard negatives may follow in further columns. The data set's `prompts` ("query: ",
    "passage: ") are put before the texts and saved with the model.
    """

    default_scale = 100.0


class Contriever(MultipleNegatives):
    """Contriever: two random crops of one text find each other in the batch.

        loss = mean over rows i of -log( exp(s cos(c_i, c'_i)) / sum over rows j of exp(s cos(c_i, c'_j)) )

    One text column. A crop is a run of words; its share of the text is uniform between `min_crop` and `max_crop`,
    its place is uniform, and it has at least one word. Words are separated by white space. s = 20 is the paper's
    temperature of 0.05; its dot product is a cosine here.
    """

    columns = (1, 1)

    def __init__(
        self,
        *,
        scale: float | None = None,
        temperature: float | None = None,
        symmetric: bool = False,
        min_crop: float = 0.1,
        max_crop: float = 0.5,
    ) -> None:
        super().__init__(scale=scale, temperature=temperature, symmetric=symmetric)
        self.max_crop = check_between("max_crop", max_crop, 0, 1)
        self.min_crop = check_between("min_crop", min_crop, 0, max_crop)

    def views(self, texts: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
        """Two crops of each text of the one column."""
        (column,) = texts
        shares = rng.uniform(self.min_crop, self.max_crop, size=(2, len(column)))
        places = rng.random(size=(2, len(column)))
        return [
            [crop_words(*drawn) for drawn in zip(column, shares[view].tolist(), places[view].tolist(), strict=True)]
            for view in range(2)
        ]


def crop_words(text: str, share: float, place: float) -> str:
    """A run of `share` of a text's words, at least one; `place` in [0, 1) goes from the first place to the last."""
    words = text.split()
    length = max(round(share * len(words)), 1)
    start = int(place * (len(words) - length + 1))
    return " ".join(words[start : start + length])
