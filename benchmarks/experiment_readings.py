"""The words around the tables of docs/experiments.md: what was asked, and how the figures are to be read.

Figures in the text are filled in by `experiment_tables.facts`, so they are those of the tables.
"""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Reading:
    """What stands before a table, and what after it."""

    asked: str
    read: str

    def filled(self, figures: Mapping[str, str]) -> "Reading":
        """The same with the figures in their places."""
        return Reading(self.asked.format(**figures), self.read.format(**figures))


INTRODUCTION = """
# Experiments

The questions of the Sentence-BERT paper (Reimers and Gurevych, 2019), asked again with what fits on two cores:
smaller encoders, hundreds of training steps instead of an epoch. Made by `python -m benchmarks.experiment_tables`
from `benchmarks/results/experiments.json`, which `make experiments` measures (benchmarks/README.md says from what).
Figures are Spearman correlations of cosine and gold score x 100 where nothing else is said. {cpu}, {cores} cores,
torch {torch}, transformers {transformers}.

The base of all training is the body of distilbert-base-cased as a grammar tagger left it, quantised to 8 bits and
back: no checkpoint untouched by any task was at hand. Sentences of STS-B dev and test were taken out of SNLI before
anything was learned from it. all-MiniLM-L6-v2, all-mpnet-base-v2 and paraphrase-MiniLM-L3-v2 were trained by their
authors on a billion pairs or less, SNLI among them.
"""

READINGS = {
    "Raw vectors, word vectors, sentence vectors": Reading(
        """
The paper's first table: is the output of a transformer that was not trained for it any use as a sentence vector? NLI
is the base after {nli_steps} steps of the classification objective.
""",
        """
Hardly. On the mean of the seven sets the base reaches {raw_cls} (cls), {raw_mean} (mean) and {raw_max} (max); the
mean of GloVe's 50 dimensions, which needs no transformer, {glove}, and that of WordLlama's 256, {wordllama}. The
paper has the same order (cls 29.2, mean of BERT 54.8, GloVe of 300 dimensions 61.3). {nli_steps} steps of NLI,
minutes of one core, lift mean pooling by {nli_gain} points to {nli}; the paper's encoder, with 250 times the pairs
and from a better start, gets to 74.9. Our base is a worse one than an untouched BERT, so the distance between raw and
trained is not to be compared with the paper's; the order is.
""",
    ),
    "Sentence encoders": Reading(
        """
The encoders people use, and two tables of static vectors as the floor. All pairs of a year of STS are pooled and all
rows of SICK are used, as in MTEB, whose published figures are compared.
""",
        """
Where figures are published, ours are the same, so the encoder and the evaluation are the usual ones. The twelve
layers of all-mpnet-base-v2 are {large_gain} points above the six narrow ones of all-MiniLM-L6-v2, for about eight
times the arithmetic per token; the three of paraphrase-MiniLM-L3-v2 are {half_loss} points below, for half. Static
WordLlama vectors are {wordllama_gap} points below at a small part of the cost: enough for a first pass over a large
corpus. Other languages are another matter. The six-layer model falls from {small_english} on English STS-B to
{small_other} on the mean of eleven languages, and below the static vectors ({wordllama_other}), whose vocabulary is
that of a language model and has pieces or bytes for every script. For another language take a multilingual encoder;
these are no use there.
""",
    ),
    "Training signals": Reading(
        """
Which labels make a good encoder? The same base, batches of 16, learning rate 5e-5: {nli_steps} steps of the
classification objective on SNLI, as many of regression on STS-B train, the second after the first, and 150 of the
triplet objective on triplets of SNLI.
""",
        """
Labels of the very task win: STS train alone gives {sts_test}, NLI alone {nli_test}. NLI first adds {nli_first} points
to STS on the test part, as the paper has it, and takes one off on dev: a single seed tells no more. Triplets
({triplets_test}) use the same sentences as NLI and get more out of them in fewer steps: their objective is about
distances, which is what is measured here. All of this is the beginning of training; with an epoch the order may
change.
""",
    ),
    "Pooling and concatenation": Reading(
        """
The paper's ablation: what to pool, and what the classifier sees. Three of the base's six layers, 80 steps of 16 pairs
of SNLI; Spearman on STS-B dev, mean and standard deviation over {ablation_seeds} seeds.
""",
        """
At 80 steps the noise is as large as most differences: the seeds of one cell are up to {ablation_noise} points apart.
What holds over it: all four vectors in the classifier are best for cls and for max, cls depends most on the choice,
and on the mean of the four rows mean pooling is ahead ({ablation_mean}, against {ablation_cls} for cls and
{ablation_max} for max). The paper, after an epoch of NLI, has mean pooling a point ahead (80.8, 79.8 and 79.1 for
mean, cls and max) and its largest effect where ours is small: 66.0 with `u,v` and 80.8 with `u,v,|u-v|`. 80 steps are
too few to see it. That three layers do better here than all six do after 250 steps (experiment 3) suggests that the
last layers of this base, a grammar tagger's, are in the way.
""",
    ),
    "Transfer": Reading(
        """
SentEval: accuracy x 100 of a logistic regression on frozen vectors, with the train, dev and test parts of a set, or
nested ten-fold cross-validation where there are none.
""",
        """
all-MiniLM-L6-v2 leads throughout but on MRPC, which asks for paraphrases that share their words. It is ahead most
where the kind of a question counts (TREC) and least where single words give the answer away (MPQA, SUBJ): there the
mean of 50 numbers per word is within a few points. The paper finds the same of its encoders against GloVe, with
larger encoders and all rows. A classifier can weigh dimensions, which cosine cannot, so a poor ranking on STS does
not mean poor features: GloVe and WordLlama change places between the two tables.
""",
    ),
    "Sections of articles": Reading(
        """
Triplets of sentences, two of one section of an article and one of another section, built as by Dor et al. (2018); 20
articles are tested, 81 others were learned from. "sections" is the base after 100 steps of 16 triplets with the
triplet objective. The share of triplets, x 100, whose positive is nearer than the negative.
""",
        """
100 steps take the base from {section_raw} to {section_trained}, a little above the all-purpose all-MiniLM-L6-v2
({section_small}), which never saw the task; the paper gets to 80.4 after 1.8 million triplets. It is a hard task:
chance is 50, and two sentences of a section need not have anything to do with each other. With 5,315 triplets of 20
articles the two are within each other's error. Cosine, Euclidean and Manhattan distance agree but for WordLlama,
whose vectors' lengths mean something else.
""",
    ),
    "Efficiency": Reading(
        """
The paper's headline: the most similar pair of 10,000 sentences. The bi-encoder (all-MiniLM-L6-v2) encodes all of them
and compares all vectors; a cross-encoder of the same size must read all {pairs} pairs, of which {sampled} were
measured and the rest is arithmetic. Smart batching, which here means no padding at all, is compared with batches of
32 as they come. Seconds are of one core; CPU seconds count, as other work shared the machine.
""",
        """
{bi} CPU seconds against {cross_days} CPU days: {ratio} times. The paper says about 5 seconds against 65 hours on a
GPU; its sentences are shorter, its encoder larger, and its 5 seconds are those of encoding. Comparing the 50 million
pairs of vectors takes {search} seconds of it. Not padding makes encoding {smart} times as fast (the paper: 1.9 times
on a CPU): these sentences have from one word to hundreds, and in a batch as they come the longest sets the price.
""",
    ),
    "Descendants": Reading(
        """
What came after the paper, on the same base: multiple negatives (100 steps of 32 triplets of SNLI), the same with
augmentation (words left out and swapped, each in half of the texts) and with adversarial steps (FGSM on token
embeddings), unsupervised SimCSE (100 steps of 64 sentences), and a student with three of the six layers that learns
the vectors of "multiple negatives, then STS" from 6,400 sentences without labels.
""",
        """
Labels first: from {raw_stsb} raw, multiple negatives on SNLI triplets reach {ranking_test} and STS on top
{teacher_test}; the same 250 steps of STS without them gave {sts_test}. SimCSE gets to {simcse_test} without any
label, more than NLI's classification objective with 4,000 labelled pairs. Augmentation brings nothing here
({augmentation_test}): random deletions and swaps are poor paraphrases, and SNLI has no lack of pairs. FGSM takes
{fgsm_loss} points away and doubles the cost: it was measured with the default step of an earlier state, which was too
strong; the present one, a hundredth of the length of a text's embeddings, is not measured yet. The student keeps
{student_kept} % of its teacher's correlation and encodes {student_speed} times as fast. One seed each:
differences of a point say nothing.
""",
    ),
}
