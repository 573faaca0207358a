"""What the demo made: paraphrases that share few words, and the largest groups of duplicates."""

import pandas as pd


def main(folder: str = "demo-out") -> None:
    """Prints a few results and where to look further."""
    pairs = pd.read_parquet(f"{folder}/pairs")
    print("\nPairs that say the same in other words:")
    for pair in pairs[pairs.lexical_overlap < 0.2].head(4).itertuples():
        print(f"    {pair.score:.2f}  {pair.text_a}\n          {pair.text_b}")
    duplicates = pd.read_parquet(f"{folder}/duplicates")
    print("\nThe largest group of near-identical tickets, + is the one to keep:")
    for ticket in duplicates[duplicates.group == 0].itertuples():
        print(f"    {'+' if ticket.keep else ' '} {ticket.text}")
    print(f"\nembeddings/, neighbors/, pairs/ and duplicates/ are in {folder}/: open them with pandas or DuckDB.")


if __name__ == "__main__":
    main()
