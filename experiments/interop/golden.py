"""What transformers computes with tiny models of every family, as files that tests compare with.

Run: python experiments/interop/golden.py          # all of tests/interop/tables.py
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
from tests.interop.golden import FOLDER  # noqa: E402
from tests.interop.tables import VARIANTS  # noqa: E402

NEW_TOKENS = 64
# A margin that rounding cannot close, which is 1e-6, and a text that does not go round.
MARGIN, DISTINCT, ATTEMPTS = 1e-3, 4, 50


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
        most = np.abs(arrays["logits" if "logits" in arrays else "hidden"]).max()
        size = path.stat().st_size
        print(f"{name}: {size:,} bytes, numbers up to {most:.1f}, seed {arrays['seed']}")


def make(variant):
    """Content of a golden file, from the first seed whose text is varied and has no near-ties."""
    for seed in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as folder:
            arrays, margin = outputs(pathlib.Path(folder), variant, seed)
        if margin > MARGIN:
            return arrays | {"seed": np.array(seed)}
    raise SystemExit(f"{variant} has no clear text; change its sizes")


def outputs(folder, variant, seed):
    """Arrays of a golden file, and the smallest margin by which one of its tokens was chosen."""
    config, shapes = torch_models.write_variant(folder, variant, seed)
    model = torch_models.read_model(folder, variant.class_name, variant.surplus)
    rng = np.random.RandomState(seed)
    inputs = torch_models.draw_inputs(rng, variant, model.config)
    arrays = {"config": np.array(json.dumps(config)), "tensors": np.array(json.dumps(shapes))}
    arrays |= {name: np.int32(values) for name, values in inputs.items()}
    arrays |= torch_models.run(model, variant.kind, inputs)
    if variant.kind == "decoder":
        prompt = inputs["tokens"][0, :9]
        greedy, margin = torch_models.continue_greedily(model, prompt, NEW_TOKENS)
        return arrays | {"greedy": np.int32(greedy)}, margin * (len(set(greedy)) >= DISTINCT)
    return arrays, np.inf


if __name__ == "__main__":
    main()
