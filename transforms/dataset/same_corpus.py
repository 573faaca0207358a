"""Distinguishes a changed corpus from a different one, so that a job does not replace the result of another corpus."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from sbert_core.data.manifest import Manifest
from transforms.dataset.published import read_part
from transforms.dataset.slices import InputFile, read_rows, split_file


def is_same_corpus(folder: str, manifest: Manifest, files: Sequence[InputFile], text_column: str) -> bool:
    """Whether files share a file name, or a text, with the input of the dataset in `folder`.

    An empty corpus is taken for a state of any corpus. Texts are read only if no file name is shared, and only up to
    the first shared text.
    """
    if not manifest.rows or not any(file.rows for file in files):
        return True
    if {file.name for file in manifest.inputs or ()} & {file.name for file in files}:
        return True
    old_column = str(manifest.settings.get("text_column", text_column))
    old_hashes = np.unique(
        np.concatenate([_hashes(read_part(folder, part, [old_column])[old_column]) for part in manifest.parts])
    )
    for file in files:
        for input_slice in split_file(file):
            texts = pa.chunked_array([read_rows(input_slice, [text_column]).column(text_column)])
            if np.isin(_hashes(texts), old_hashes).any():
                return True
    return False


def _hashes(texts: pa.ChunkedArray) -> np.ndarray:
    """A hash (n,) of each text that is not null."""
    values = texts.cast(pa.string()).drop_null().to_numpy()
    return pd.util.hash_array(values, categorize=False)
