"""What transformers computes with tiny models of every family, as files that tests compare with.

Run: python experiments/interop/golden.py          # all of tests/interop/variants.py
     python experiments/interop/golden.py llama    # those whose names start so

Needs torch and transformers (transformers 5.23 and torch 2.13 made the files that are here). The
weights are not stored: they are drawn from the names of the tensors.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["HF_HUB_OFFLINE"] = "1"

from tests.interop import torch_models  # noqa: E402
from tests.interop.drawn import drawn  # noqa: E402
from tests.interop.golden import FOLDER  # noqa: E402
from tests.interop.tables import VARIANTS  # noqa: E402

LENGTHS = np.array([11, 7])
NEW_TOKENS = 64
# A margin that rounding cannot close, which is 1e-6, and a text that does not go round.
MARGIN, DISTINCT, ATTEMPTS = 1e-3, 6, 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", nargs="?", default="", help="what names of variants start with")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / FOLDER)
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    for name, variant in VARIANTS.items():
        if not name.startswith(args.start):
            continue
        arrays = make(variant)
        path = args.folder / f"{name}.npz"
        np.savez_compressed(path, **arrays)
        size, most = path.stat().st_size, np.abs(arrays["logits"]).max()
        print(f"{name}: {size:,} bytes, logits up to {most:.1f}, seed {arrays['seed']}", flush=True)


def make(variant):
    """Content of a golden file: of the first seed whose greedy text is clear and varied."""
    for seed in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as folder:
            arrays, margin = outputs(pathlib.Path(folder), variant, seed)
        if margin > MARGIN:
            return arrays | {"seed": np.array(seed)}
    raise SystemExit(f"{variant} has no clear text; change its sizes")


def outputs(folder, variant, seed):
    """Arrays of a golden file, and the least margin of a choice."""
    config, shapes = torch_models.write_variant(
        folder, variant, lambda name, shape: drawn(variant.model_type, name, shape, seed)
    )
    model = torch_models.read_model(folder, variant)
    arrays = {"config": np.array(json.dumps(config)), "tensors": np.array(json.dumps(shapes))}
    rng = np.random.RandomState(seed)
    tokens = rng.randint(3, model.config.vocab_size, (len(LENGTHS), LENGTHS.max()))
    tokens[np.arange(LENGTHS.max()) >= LENGTHS[:, None]] = 0
    arrays |= {"tokens": np.int32(tokens), "lengths": np.int32(LENGTHS)}
    arrays |= torch_models.run_decoder(model, tokens, LENGTHS)
    prompt = rng.randint(3, model.config.vocab_size, 9)
    greedy, margin = torch_models.continue_greedily(model, prompt, NEW_TOKENS)
    arrays |= {"prompt": np.int32(prompt), "greedy": np.int32(greedy)}
    return arrays, margin if len(set(greedy.tolist())) >= DISTINCT else 0.0


if __name__ == "__main__":
    main()
