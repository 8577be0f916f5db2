"""The model card of an export: what the model is, how it is used, and how it was trained."""

import dataclasses
import json
import pathlib
import re
from typing import Any

import jax
from flax import linen as nn

from jaxformer import __version__
from jaxformer.config import DataConfig
from jaxformer.config.files import changed_settings
from jaxformer.runs.folder.files import CHECKPOINTS, load_summary
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.storage import write_whole
from jaxformer.training import Checkpoints

_CARD = """---
{metadata}
---
# {title}

{model}, with {parameters:,} parameters, trained with jaxformer {version}.

```python
from transformers import AutoTokenizer, {architecture}

model = {architecture}.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
```

{uses}

## Training

{facts}

With the same data, `jaxformer train config.toml` trains it again, with this as `config.toml`:

```toml
{config}
```
"""
_DATA_SET = re.compile(r"hf://datasets/([^/@]+/[^/@]+)")


def write_model_card(folder: pathlib.Path, name: str, model: TextModel, run: pathlib.Path) -> None:
    """Writes README.md into the export of a run, for the repository OWNER/MODEL of this name."""
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    settings = changed_settings(dataclasses.replace(model.config, out=None)).items()
    metadata: dict[str, Any] = {"library_name": "transformers", "tags": ["jaxformer"]}
    if data_sets := _DATA_SET.findall(" ".join(_paths(model.config.data))):
        metadata["datasets"] = sorted({*data_sets})
    card = _CARD.format(
        metadata="\n".join(f"{key}: {json.dumps(value)}" for key, value in metadata.items()),
        title=name.rpartition("/")[2], name=name, architecture=architecture, version=__version__,
        model=model.kind[0].upper() + model.kind[1:],
        parameters=sum(leaf.size for leaf in jax.tree.leaves(nn.unbox(model.params))),
        uses="\n".join(f"- {use.format(name).replace(': ', ': `', 1)}`" for use in model.uses),
        facts="\n".join(f"- {fact}" for fact in _facts(model, run)),
        config="\n".join(f"{key} = {value}" for key, value in settings),
    )  # fmt: skip
    write_whole(folder / "README.md", card)


def _paths(data: DataConfig) -> list[str]:
    """Paths of all files that a run was trained and validated on."""
    sources = [path for source in data.mixture for path in source.paths]
    return [*data.paths, *sources, *data.validation_paths]


def _facts(model: TextModel, run: pathlib.Path) -> list[str]:
    """Lines on data, steps and loss of a run."""
    summary, data = load_summary(run), model.config.data
    facts = [
        f"data: {data.source}{''.join(f', `{path}`' for path in _paths(data))}; "
        f"{summary.train_tokens:,} tokens for training, {summary.validation_tokens:,} for "
        "validation"
    ]
    if model.step is not None:
        facts.append(f"steps: {model.step:,}")
        with Checkpoints(run / CHECKPOINTS, read_only=True) as checkpoints:
            loss = checkpoints.validation_loss(model.step)
        if loss is not None:
            facts.append(f"validation loss: {loss:.4f} nats per {model.unit}")
    return facts
