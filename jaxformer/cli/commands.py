"""The commands and their options, declared for tyro."""

import dataclasses
import pathlib
from typing import Annotated, Any, Literal, Union

import tyro

from jaxformer.cli.opening_flags import ModelSource, Opening, RunFolder, by_default
from jaxformer.cli.plot_commands import Plot
from jaxformer.config import SamplingOptions, SearchOptions

__all__ = [
    "Configs",
    "Convert",
    "Evaluate",
    "Generate",
    "Inspect",
    "Plan",
    "Predict",
    "Prepare",
    "Sweep",
    "Train",
    "Translate",
    "Verify",
    "all_commands",
]

_Config = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG")]
_EACH_LINE = by_default("each line of --file or of standard input", "[TEXT]")
_Text = Annotated[str | None, tyro.conf.Positional, _EACH_LINE]


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a model from a config, or resume its run.

    Flags override keys of the config, for example --optimizer.learning-rate 3e-4. To list all keys:
    jaxformer train CONFIG --help
    """

    config: _Config
    """Config file, or the name of a built-in config. To list those: jaxformer configs"""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Train a config with several values of its keys, and compare.

    A flag with several values, separated by commas, makes a run for each combination:

    jaxformer sweep CONFIG --optimizer.learning-rate 1e-4,3e-4,1e-3 --seed 0,1,2 --out runs/sweep

    Runs that differ only in seed, learning rate or weight decay train at once, in one program. The
    folder (default: runs/NAME_sweep) gets a run folder for each run, sweep.csv, sweep.html and
    sweep.png. If you stop the command and start it again, it continues where it stopped.
    """

    config: _Config
    """Config file, or the name of a built-in config."""


@dataclasses.dataclass(frozen=True)
class Prepare:
    """Read, split and tokenize the data of a config.

    jaxformer train also does this before its first step. Text of more than 64 MiB is written to
    token files; memory use stays bounded. If you stop the command and start it again, it continues
    where it stopped. Flags override keys of the config, for example:

    jaxformer prepare CONFIG --data.paths "corpus/*.jsonl.gz" --data.cache /data/tokens
    """

    config: _Config
    """Config file, or the name of a built-in config."""


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Show the data and a batch of a config, or the state of a run.

    For a config, this prepares the data as jaxformer train does for a new run. It shows lengths,
    tokens per word, bytes per token, texts that validation and training share, and decoded rows of
    a batch. It creates no model and no run folder. Flags override keys, as in jaxformer train.

    For a run folder, this shows its config, data and checkpoints, and what you can do next.
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG|RUN")]
    """Config file, name of a built-in config, or run folder, such as runs/quickstart."""

    step: int = 0
    """Training step whose batch is shown, from 0, as on the devices of this machine."""

    rows: int = 3
    """Number of rows of the batch to show."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Estimate training memory and time on devices you need not have.

    This allocates no model and reads no data. For TPUs, the TPU compiler compiles the step; install
    jaxformer[tpu]. Flags override keys of the config, as in jaxformer train. The exit status is 0
    if the step fits in memory, else 1.
    """

    config: _Config
    """Config file, or the name of a built-in config."""

    accelerator: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """A100, H100, H200, B200, v4, v5e, v5p or v6e."""

    devices: Annotated[int | None, by_default("as many as the config's mesh needs")] = None
    """Number of GPUs."""

    topology: Annotated[str | None, by_default("none; required for TPUs")] = None
    """Shape of the TPU slice in chips, such as 4x4, or 2x2x1 for v4 and v5p."""

    utilization: float = 0.4
    """Fraction of the peak FLOP/s to assume for the training time."""


@dataclasses.dataclass(frozen=True)
class Configs:
    """List the built-in configs, or print one to save and change."""

    name: Annotated[str | None, tyro.conf.Positional, by_default("list all", "[NAME]")] = None
    """Config to print, such as quickstart."""


@dataclasses.dataclass(frozen=True)
class Generate:
    """Continue a prompt with a trained language model.

    Sampling uses the settings under [samples] in the run's config. Flags override single settings.
    """

    run: RunFolder
    """Run folder, such as runs/quickstart, or Hugging Face folder."""

    prompt: Annotated[str | None, by_default("the first prompt in [samples]", "PROMPT")] = None
    """Text to continue."""

    chat: bool = False
    """Treat the prompt as a message and answer it, using the model's chat template."""

    max_new_tokens: Annotated[
        int | None, by_default("what fits in the context; Hugging Face folder: its limit, or 256")
    ] = None
    """Maximum length of the continuation, in tokens."""

    sampling: tyro.conf.OmitArgPrefixes[SamplingOptions] = dataclasses.field(
        default_factory=SamplingOptions
    )

    seed: int = 0
    """Random seed."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Translate:
    r"""Translate sentences with a trained encoder-decoder.

    Standard output gets one translation per input line, in order. If a line cannot be translated,
    for example because it is empty, its output line is empty and standard error names it. If
    --num-best is above 1, each output line is a score, a tab and a translation; an empty line ends
    each sentence. A line break inside a translation is written as \n. Standard error names words
    that the model never saw in training.

    Beam search uses the settings under [translation] in the run's config, but returns one
    translation per sentence. Flags override single settings.
    """

    run: RunFolder
    """Run folder, such as runs/phrasebook_en_kn, or Hugging Face folder."""

    text: _Text = None
    """Sentence to translate."""

    file: Annotated[pathlib.Path | None, by_default("none")] = None
    """UTF-8 text file with one sentence per line; may be compressed (.gz)."""

    search: tyro.conf.OmitArgPrefixes[SearchOptions] = dataclasses.field(
        default_factory=SearchOptions
    )

    temperature: float = 0.0
    """Above 0: sample tokens at this temperature instead of using beam search."""

    seed: int = 0
    """Random seed for sampling."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Predict:
    r"""Fill in [MASK] in texts, or label texts with a classifier.

    Each prediction is one line of tab-separated fields. A classifier prints the probability and the
    label. A masked language model prints the number of the mask, the probability and the token. A
    model that scores texts, such as a reranker, prints scores (logits) instead of probabilities. An
    empty line ends the predictions of each text. If an input line cannot be used, for example
    because it is empty, its output is an empty line and standard error names it. A predicted line
    break is written as \n.
    """

    run: RunFolder
    """Run folder, such as runs/masked_python, or Hugging Face folder."""

    text: _Text = None
    """Text to predict for."""

    file: Annotated[pathlib.Path | None, by_default("none")] = None
    """UTF-8 text file with one text per line; may be compressed (.gz)."""

    num_best: int = 3
    """Number of predictions to print for each mask or text, most likely first.
    A model that scores texts prints all scores."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Measure a trained run on its validation data, or on other data.

    Prints the loss. For a translator, also prints BLEU and chrF (install jaxformer[eval]) and the
    share of exact translations; for a classifier, the accuracy.
    """

    run: RunFolder
    """Run folder, such as runs/quickstart, or Hugging Face folder."""

    data: Annotated[tuple[pathlib.Path, ...], by_default("the validation data")] = ()
    """Files to measure on, in the format of the training data.
    Text files; TSV files of pairs, or an aligned file per language; TSV files of text and label."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Convert:
    """Convert a run to a Hugging Face folder, or back.

    If a Hugging Face model type can represent the model, transformers can load the folder, and so
    can other programs that read its format. If the target ends in .safetensors, only the parameters
    are written, under jaxformer's own paths, with the model's config in a TOML file next to them.
    """

    source: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """Run folder, Hugging Face folder, or id of a model at Hugging Face, OWNER/MODEL."""

    target: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")]
    """Folder to create, or file that ends in .safetensors."""

    reading: Annotated[ModelSource, tyro.conf.arg(name="")] = ModelSource()

    model_type: Annotated[
        str | None, by_default("the one it was loaded from, else the first that can represent it")
    ] = None
    """Hugging Face model type to write, such as llama."""

    dtype: Annotated[Literal["float32", "bfloat16"] | None, by_default("unchanged")] = None
    """Dtype of the written parameters."""

    ignore: Annotated[tuple[str, ...], by_default("none")] = ()
    """For a Hugging Face folder: fields of its JSON files that you know to be irrelevant."""


@dataclasses.dataclass(frozen=True)
class Verify:
    """Verify by SHA-256 that no file of a run has changed.

    Prints one line for the run folder and one for each checkpoint: "good", or what is damaged. The
    exit status is 1 if anything is damaged, else 0. Metrics, samples and figures are not checked.
    """

    run: RunFolder
    """Run folder, such as runs/quickstart."""


def all_commands(*, brief: bool) -> Any:
    """The commands, for tyro; if brief, each is described by the first line of its docstring."""
    kinds: tuple[type, ...] = (Configs, Train, Sweep, Prepare, Plan, Inspect, Generate, Translate,
                               Predict, Evaluate, Convert, Verify, Plot)  # fmt: skip
    says = {kind: str(kind.__doc__).partition("\n")[0] if brief else None for kind in kinds}
    named = [
        Annotated[kind, tyro.conf.subcommand(kind.__name__.lower(), description=says[kind])]
        for kind in kinds
    ]
    return Union[*named]
