"""Lower precision for stored vectors."""

from typing import Literal, get_args

import numpy as np

OutputPrecision = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]


def calibrate(vectors: np.ndarray) -> np.ndarray:
    """Returns the ranges that `quantize` needs for int8 and uint8: (2, dim), minimum and maximum per dimension."""
    if vectors.ndim != 2 or len(vectors) < 2:
        raise ValueError(f"calibration needs at least two vectors, got shape {vectors.shape}")
    return np.stack([vectors.min(axis=0), vectors.max(axis=0)]).astype(np.float32)


def quantize(vectors: np.ndarray, precision: OutputPrecision, ranges: np.ndarray | None = None) -> np.ndarray:
    """Converts float32 `vectors` (n, dim) to lower precision, with the semantics of sentence-transformers.

    - `float16`: (n, dim).
    - `int8`, `uint8`: (n, dim), 256 equal steps between the `ranges` (2, dim) of each dimension; values outside are
      clipped. Ranges are never computed from `vectors`: the result of two calls would differ.
    - `binary`, `ubinary`: (n, ceil(dim / 8)), one sign bit per dimension, as int8 or uint8.
    """
    if precision == "float32":
        return vectors.astype(np.float32, copy=False)
    if precision == "float16":
        return vectors.astype(np.float16)
    if precision in ("int8", "uint8"):
        if ranges is None:
            raise ValueError(f"{precision} needs ranges (2, dim): compute them with calibrate() from sample vectors")
        low, high = np.asarray(ranges, dtype=np.float32)
        if low.shape != vectors.shape[1:]:
            raise ValueError(
                f"ranges are for {low.shape[0]} dimensions, vectors have {vectors.shape[1]}: use the same model"
            )
        step = (high - low) / 255
        step = np.where(step == 0, 1, step)
        levels = np.clip(np.floor((vectors - low) / step), 0, 255)
        if precision == "uint8":
            return levels.astype(np.uint8)
        return (levels - 128).astype(np.int8)
    if precision in ("binary", "ubinary"):
        bits = np.packbits(vectors > 0, axis=-1)
        return bits if precision == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)
    raise ValueError(f"output precision {precision!r} is not known: use {', '.join(get_args(OutputPrecision))}")
