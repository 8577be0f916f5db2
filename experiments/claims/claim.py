"""What every claim has: its words, its rule, its finding, and a page.

A claim stands in claims.toml under the name of its script, which defines `SIZES` and `measure` and
ends with `main(name, SIZES, measure)`.
"""

import argparse
import base64
import dataclasses
import html
import io
import json
import pathlib
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from matplotlib.figure import Figure

from jaxformer.config import (
    DataConfig,
    ExperimentConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
)
from jaxformer.planning import ACCELERATORS, make_plan

__all__ = ["Claim", "Finding", "Runs", "Verdict", "judge", "main", "plan", "section"]

Verdict = Literal["holds", "holds in part", "does not hold at this size"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper, and how it is judged.

    Args:
        title: a few words.
        paper: authors, year and arXiv number.
        words: the claim as the paper words it.
        setting: what is trained or computed here, on what.
        rule: what must be measured for each verdict.
    """

    title: str
    paper: str
    words: str
    setting: str
    rule: str

    @classmethod
    def load(cls, name: str) -> "Claim":
        """Reads the claim of this name from claims.toml."""
        fields = tomllib.loads((pathlib.Path(__file__).parent / "claims.toml").read_text("utf-8"))
        return cls(**{key: " ".join(text.split()) for key, text in fields[name].items()})


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was measured, and the verdict by the rule.

    Args:
        verdict: the verdict.
        summary: the numbers that decide it, in a sentence or two.
        figure: what it looks like.
        numbers: the numbers by name, of each seed where there are several.
        pages: HTML pages to look at, by name.
    """

    verdict: Verdict
    summary: str
    figure: Figure
    numbers: Mapping[str, Any]
    pages: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Runs(NamedTuple):
    """Runs of one size that a claim trains.

    Args:
        model: the model.
        count: number of runs.
        steps: steps of each.
        batch_size: rows of a batch.
        length: tokens of a row.
    """

    model: ModelConfig
    count: int
    steps: int
    batch_size: int
    length: int


def judge(*parts: bool) -> Verdict:
    """The verdict on a claim of several parts, by which of them are so."""
    if all(parts):
        return "holds"
    return "holds in part" if any(parts) else "does not hold at this size"


def main(
    name: str,
    sizes: Mapping[str, Any],
    measure: Callable[[Any], Finding],
    runs: Callable[[Any], Iterable[Runs]] | None = None,
) -> None:
    """Runs a claim from the command line: measures it, prints it, and writes it to a folder.

    Args:
        name: name of the claim.
        sizes: settings by the name of a scale: "toy" for tests, "cpu" for minutes on two cores,
            "accelerator" for the paper's own.
        measure: function of the settings of a scale to what was found.
        runs: function of the settings of a scale to what is trained, for `--plan`; None for a claim
            that takes seconds.
    """
    claim = Claim.load(name)
    parser = argparse.ArgumentParser(description=f"{claim.title}: {claim.paper}. {claim.words}")
    parser.add_argument("--scale", choices=list(sizes), default="cpu")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/claims"))
    if runs is not None:
        parser.add_argument(
            "--plan", choices=[name for name, a in ACCELERATORS.items() if a.platform == "cuda"],
            help="estimate the training on one GPU, and train nothing",
        )  # fmt: skip
    options = parser.parse_args()
    if runs is not None and options.plan:
        print(plan(runs(sizes[options.scale]), options.plan))
        return
    began = time.perf_counter()
    finding = measure(sizes[options.scale])
    seconds = time.perf_counter() - began
    print(f"{claim.title}: {finding.verdict} ({seconds:.0f} s)\n{finding.summary}")
    options.out.mkdir(parents=True, exist_ok=True)
    files = {page: f"{name}_{page}.html" for page in finding.pages}
    for page, file in files.items():
        (options.out / file).write_text(finding.pages[page], encoding="utf-8")
    (options.out / f"{name}.html").write_text(
        section(claim, finding, options.scale, seconds, files), encoding="utf-8"
    )
    result = {
        "title": claim.title, "scale": options.scale, "verdict": finding.verdict,
        "summary": finding.summary, "seconds": round(seconds), "numbers": finding.numbers,
    }  # fmt: skip
    (options.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def plan(runs: Iterable[Runs], accelerator: str, utilization: float = 0.4) -> str:
    """Memory and time of all runs, one after the other, at a share of the peak FLOP/s."""
    lines, hours = [], 0.0
    for model, count, steps, batch_size, length in runs:
        translates = model.architecture == "encoder_decoder"
        rows = {"batch_tokens": batch_size * length} if translates else {"batch_size": batch_size}
        config = ExperimentConfig(
            data=DataConfig(source="phrasebook" if translates else "files"),
            model=dataclasses.replace(model, max_len=length),
            tokenizer=TokenizerConfig(kind="byte"),
            training=TrainingConfig(steps=steps, **rows),
        )
        training_plan = make_plan(config, ACCELERATORS[accelerator])
        hours_of_runs = count * steps * training_plan.step_seconds(utilization) / 3600
        hours += hours_of_runs
        needed, available = (
            size / 2**30 for size in (training_plan.needs.total, training_plan.available)
        )
        lines.append(
            f"{count} runs of {training_plan.num_params / 1e6:,.1f} M parameters, {steps:,} steps "
            f"of {training_plan.tokens:,} tokens: {hours_of_runs:,.2f} hours; {needed:,.1f} GiB"
            + ("" if training_plan.fits else f", which do not fit in {available:,.1f} GiB")
        )
    return "\n".join([*lines, f"in all: {hours:,.2f} hours of one {accelerator}"])


def section(
    claim: Claim, finding: Finding, scale: str, seconds: float, files: Mapping[str, str]
) -> str:
    """The claim as a section of an HTML page, its figure inside; with links to pages by name."""
    picture = io.BytesIO()
    finding.figure.savefig(picture, format="png", dpi=110)
    data = base64.b64encode(picture.getvalue()).decode()
    rows = {
        "Paper": claim.paper,
        "Claim": claim.words,
        "Setting": f"{claim.setting} (scale: {scale})",
        "Rule": claim.rule,
        "Measured": finding.summary,
        "Cost": f"{seconds:.0f} s",
    }
    cells = "".join(
        f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items()
    )
    links = "".join(f'<p><a href="{file}">{page}</a></p>' for page, file in files.items())
    return (
        f"<section><h2>{html.escape(claim.title)}: {finding.verdict}</h2><table>{cells}</table>"
        f'<img src="data:image/png;base64,{data}" alt="{html.escape(claim.title)}">'
        f"{links}</section>\n"
    )
