"""What the documents lack: the attention of a model that was trained, on their own sentence."""

import dataclasses
import pathlib

import numpy as np
from steps import Document, Shown, Step, Table

from jaxformer import runs, viz
from jaxformer.config import ExperimentConfig, load_config
from jaxformer.training import read_metrics

__all__ = ["SENTENCE", "document", "short_config"]

SENTENCE = "my name is prathamesh"
"""The sentence that the fourth document wants translated into Kannada."""

_STEPS = 300
_CONFIG = pathlib.Path(__file__).parents[2] / "configs" / "phrasebook_en_kn.toml"


def short_config(out: pathlib.Path, steps: int = _STEPS) -> ExperimentConfig:
    """Shortens the training on the English-Kannada phrasebook to about a minute.

    Args:
        out: run folder to train in.
        steps: of the optimizer.
    """
    config = load_config(_CONFIG)
    replace = dataclasses.replace
    return replace(
        config,
        out=str(out),
        schedule=replace(config.schedule, warmup_steps=min(100, steps), decay_steps=steps),
        training=replace(
            config.training, steps=steps, log_every=10, eval_every=50, checkpoint_every=steps
        ),
        translation=replace(config.translation, metrics_pairs=100),
        samples=replace(config.samples, prompts=(SENTENCE,)),
    )


def document(folder: pathlib.Path) -> Document:
    """Looks at a trained translator.

    Args:
        folder: its run folder.
    """
    run = runs.open_run(folder)
    if not isinstance(run, runs.TranslationRun):
        raise SystemExit(f"{folder} holds {run.kind}; a translator's run folder is needed")
    maps = {one.name: one for one in run.attention(SENTENCE)}
    cross = maps["cross-attention"]

    def training_curve() -> Shown:
        records = read_metrics(folder)
        scored = [record for record in records if "held_out_loss" in record]
        names = [name for name in ("held_out_loss", "bleu", "exact") if name in scored[-1]]
        cells = [[float(record[name]) for name in names] for record in scored]
        return Shown(
            "The encoder-decoder is trained on the phrasebook's pairs. The loss falls in nats per "
            "token; that of held-out sentences, which hold combinations never trained on, falls "
            "with it. The training loss stays higher, as label smoothing and dropout are in it.",
            tables={
                "Held out": Table(names, [f"step {record['step']}" for record in scored], cells)
            },
            figures={"training_curve": viz.loss_curves({run.folder.name: records})},
        )

    def alignment() -> Shown:
        mean = np.asarray(cross.weights).mean((0, 1))
        translation = run.translate([SENTENCE])[0][0].text
        figure = viz.attention_heatmaps(
            mean, cross.query_tokens, cross.key_tokens, title=f"{SENTENCE} → {translation}"
        )
        return Shown(
            f"The decoder writes {translation}, a token at a time, from the end of text that it "
            "starts with. Each row is the token that it reads; the weights, the mean over all "
            "layers and heads, are of the source tokens it looks at while it predicts the next.",
            figures={"cross_attention_alignment": figure},
        )

    def every_head() -> Shown:
        figures = {
            f"{name.replace('-', ' ').replace(' ', '_')}_of_every_head": viz.attention_heatmaps(
                one.weights, one.query_tokens, one.key_tokens, annotate=False, title=name
            )
            for name, one in maps.items()
        }
        return Shown(
            "Every layer and head, of the three kinds of attention that an encoder-decoder has. "
            "Heads differ: some look at one neighbour, some at one word from everywhere. The "
            "decoder's own attention is lower-triangular, the encoder's and the cross-attention "
            "are not.",
            figures=figures,
        )

    def viewer() -> Shown:
        page = viz.attention_page(list(maps.values()), title=SENTENCE)
        return Shown(
            "The same weights in a page: pick a layer and a head, point at a token, and see where "
            "it looks. `jaxformer plot attention RUN --text TEXT` writes such a page.",
            pages={"attention": page},
        )

    return Document(
        name="trained_translator",
        title="A trained translator",
        about="What none of the four documents shows: attention after training, not before.",
        steps=(
            Step("Training curve", None, training_curve),
            Step("Cross-attention of a translation", None, alignment),
            Step("Attention of every layer and head", None, every_head),
            Step("Interactive attention viewer", None, viewer),
        ),
    )
