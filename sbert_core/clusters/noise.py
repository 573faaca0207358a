"""The label of rows that are in no cluster."""

from sbert_core.numbering import UNNUMBERED

NOISE = UNNUMBERED
