"""Whether a corpus is another state of one that was embedded before: grown, changed or cut anew, but not another."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from sbert_core.data.manifest import Manifest
from transforms.dataset.published import read_part
from transforms.dataset.slices import InputFile, read_rows, split_file


def is_same_corpus(folder: str, manifest: Manifest, files: Sequence[InputFile], text_column: str) -> bool:
    """Whether files share the name of a file, or a text, with what the dataset in `folder` was made of.

    An empty corpus is a state of any corpus. Texts are read only where no name is shared, and only up to the first
    text that is.
    """
    if not manifest.rows or not any(file.rows for file in files):
        return True
    if {file.name for file in manifest.inputs or ()} & {file.name for file in files}:
        return True
    old_column = str(manifest.settings.get("text_column", text_column))
    known = np.unique(
        np.concatenate([_hashes(read_part(folder, part, [old_column])[old_column]) for part in manifest.parts])
    )
    for file in files:
        for task in split_file(file):
            texts = pa.chunked_array([read_rows(task, [text_column]).column(text_column)])
            if np.isin(_hashes(texts), known).any():
                return True
    return False


def _hashes(texts: pa.ChunkedArray) -> np.ndarray:
    """A hash (n,) of each text that is not null."""
    values = texts.cast(pa.string()).drop_null().to_numpy()
    return pd.util.hash_array(values, categorize=False)
