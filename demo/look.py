"""What the demo made: for a few tickets, the tickets that say the same thing."""

from pathlib import Path

import numpy as np
import pandas as pd

QUESTIONS = ("t001455", "t002393", "t000232")


def main(folder: str = "demo-out/embeddings") -> None:
    """Prints the nearest neighbours of three tickets and where to look further."""
    tickets = pd.read_parquet(sorted(Path(folder).glob("*.parquet")))
    vectors = np.stack(tickets["embedding"])  # (n, 384), unit length: the product is the cosine
    for ticket in QUESTIONS:
        row = int(np.flatnonzero(tickets["id"] == ticket)[0])
        scores = vectors @ vectors[row]
        print(f"\n{tickets['text'][row]}")
        for other in np.argsort(-scores)[1:4]:
            print(f"    {scores[other]:.2f}  {tickets['text'][other]}")
    print(f"\n{len(tickets):,} tickets with their vectors are in {folder}/: open them with pandas or DuckDB.")


if __name__ == "__main__":
    main()
