"""What the demo made: clusters and their names, paraphrases that share few words, and where to look."""

import pandas as pd


def main(folder: str = "demo-out") -> None:
    """Prints a few results and where to look further."""
    clusters = pd.read_parquet(f"{folder}/clusters/summary").sort_values("size", ascending=False)
    print("\nThe largest clusters:")
    for cluster in clusters[clusters.cluster >= 0].head(5).itertuples():
        print(f"    {cluster.size:>4}  {cluster.name}")
    pairs = pd.read_parquet(f"{folder}/pairs")
    print("\nPairs that say the same in other words:")
    for pair in pairs[pairs.lexical_overlap < 0.2].head(3).itertuples():
        print(f"    {pair.score:.2f}  {pair.text_a}\n          {pair.text_b}")
    print(f"\nOpen {folder}/report.html in a browser; the tables beside it are Parquet, for pandas or DuckDB.")


if __name__ == "__main__":
    main()
