"""Regenerates the phrasebook's files: `python -m jaxformer.text.phrasebook`."""

import pathlib

from jaxformer.text.phrasebook.grammar import build_phrasebook, to_tsv

if __name__ == "__main__":
    for name, rows in zip(("train", "validation"), build_phrasebook(), strict=True):
        path = pathlib.Path(__file__).with_name(f"{name}.tsv")
        path.write_bytes(to_tsv(rows))
        print(f"wrote {len(rows)} pairs to {path}")
