"""First run on a new GPU or TPU: what works there, how exact and how fast it is, as one page.

In order: the devices; the attention contract; every attention implementation against float64; the
quickstart config to its expected loss; steps of a model of 124 M parameters, with their utilization
beside `jaxformer plan`, and a trace of five of them. A part that cannot run here says why, and the
others go on. Send the page to the project, or compare it with another machine's.

Run: python experiments/launch/first_hour.py --out first_hour.md
"""

import argparse
import dataclasses
import functools
import importlib.metadata
import pathlib
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import einsum

from jaxformer.accelerators import Accelerator, accelerator_of
from jaxformer.config import ExperimentConfig, load_config
from jaxformer.errors import ConfigError
from jaxformer.functional import attention_implementation, dot_product_attention
from jaxformer.memory import device_memory, readable_bytes
from jaxformer.planning import make_plan
from jaxformer.runs import train_run
from jaxformer.testing import assert_attention_contract
from jaxformer.text import python_documents
from jaxformer.training import read_metrics, read_profile

PACKAGES = (
    "jaxformer",
    "jax",
    "jaxlib",
    "flax",
    "libtpu",
    "jax-cuda12-plugin",
    "jax-cuda13-plugin",
)
IMPLEMENTATIONS = ("auto", "dense", "chunked", "cudnn", "splash")
LARGEST_ERROR = 1e-2  # relative root mean square in bfloat16, whose numbers have 8 bits
QUICKSTART = 4.20  # nats per token, on CPUs
TOLERANCE = 0.05
TRACED = range(21, 26)
TOPOLOGIES = {  # of TPU chips, by their number; the third number is for v4 and v5p
    1: ("1x1", "1x1x1"), 4: ("2x2", "2x2x1"), 8: ("2x4", "2x2x2"),
}  # fmt: skip


def devices() -> Iterator[str]:
    """The machine, and what is installed on it."""
    local = jax.local_devices()
    kinds = {device.device_kind for device in local}
    yield f"- devices: {len(local)} of kind {', '.join(kinds)}, platform {local[0].platform}"
    known = accelerator_of(local[0])
    yield f"- known to jaxformer plan: {'no' if known is None else known.name}"
    yield f"- memory of one: {readable_bytes(device_memory(local[0]))}"
    yield f"- host: {platform.platform()}, Python {platform.python_version()}"
    for name in PACKAGES:
        try:
            yield f"- {name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            pass


def contract() -> Iterator[str]:
    """The attention contract in float32, where matrix products are exact to float32."""
    for name in ("auto", "dense", "chunked"):
        attention = functools.partial(dot_product_attention, implementation=name)
        with jax.default_matmul_precision("highest"):
            assert_attention_contract(attention)
        yield f"- {name}: all claims hold"


def exact_attention(query: Any, key: Any, value: Any, upstream: Any) -> tuple[np.ndarray, ...]:
    """Output and gradients of causal attention in float64."""
    query, key, value, upstream = (np.asarray(x, np.float64) for x in (query, key, value, upstream))
    scale = query.shape[-1] ** -0.5
    scores = scale * einsum(query, key, "b t n h, b s n h -> b n t s")
    scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    output = einsum(weights, value, "b n t s, b s n h -> b t n h")
    along = einsum(upstream, value, "b t n h, b s n h -> b n t s")
    along = scale * weights * (along - (along * weights).sum(axis=-1, keepdims=True))
    return (
        output,
        einsum(along, key, "b n t s, b s n h -> b t n h"),
        einsum(along, query, "b n t s, b t n h -> b s n h"),
        einsum(weights, upstream, "b n t s, b t n h -> b s n h"),
    )


def implementations(shape: tuple[int, ...]) -> Iterator[str]:
    """Causal attention in bfloat16, forward and backward, by each implementation."""
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for _ in range(4)]
    exact = exact_attention(*arrays)
    yield f"query, key and value {list(shape)}; errors are relative root mean squares\n"
    choice = attention_implementation(*arrays[:3], is_causal=True)
    yield f'- "auto" takes {choice.name} here'
    failed = []
    for name in IMPLEMENTATIONS:

        def attend(query: Any, key: Any, value: Any, name: Any = name) -> Any:
            return dot_product_attention(query, key, value, is_causal=True, implementation=name)

        def passes(query: Any, key: Any, value: Any, upstream: Any, attend: Any = attend) -> Any:
            output, backward = jax.vjp(attend, query, key, value)
            return (output, *backward(upstream))

        try:
            outputs = jax.jit(passes)(*arrays)
        except ConfigError as error:
            yield f"- {name}: skipped: {error}"
            continue
        errors = [
            float(np.sqrt(np.mean((np.asarray(a, np.float64) - b) ** 2) / np.mean(b**2)))
            for a, b in zip(outputs, exact, strict=True)
        ]
        if not max(errors) <= LARGEST_ERROR:
            failed.append(name)
        listed = ", ".join(f"{error:.1e}" for error in errors)
        yield f"- {name}: output and gradients of query, key and value {listed}"
    if failed:
        raise AssertionError(f"errors above {LARGEST_ERROR} in {', '.join(failed)}")


def quickstart(folder: pathlib.Path, steps: int) -> Iterator[str]:
    """The quickstart config, to the loss that it has on CPUs."""
    config = load_config("quickstart")
    training = dataclasses.replace(config.training, steps=steps)
    began = time.monotonic()
    whole = steps == config.training.steps
    result = train_run(
        dataclasses.replace(config, out=str(folder / "quickstart"), training=training)
    )
    assert result.evaluation is not None
    loss = result.evaluation.loss
    yield f"- {steps} steps in {time.monotonic() - began:.0f} s: validation loss {loss:.4f} nats"
    if not whole:
        yield f"- skipped: the comparison with {QUICKSTART}, which is the loss after 500 steps"
    elif not abs(loss - QUICKSTART) <= TOLERANCE:
        raise AssertionError(f"the loss must be {QUICKSTART} within {TOLERANCE}, got {loss:.4f}")


def model_config(folder: pathlib.Path, tiny: bool) -> ExperimentConfig:
    """The config gpt2_124m on the text of Python's documentation, for a few steps."""
    text = folder / "text.txt"
    text.write_text("\n".join(python_documents()), encoding="utf-8")
    config = load_config(
        "gpt2_124m",
        complete=lambda values: {**values, "data": {**values["data"], "paths": [str(text)]}},
    )
    rows = 8 * jax.local_device_count()
    training = dataclasses.replace(
        config.training, steps=30, batch_size=rows, accumulate_steps=1, log_every=10, eval_every=30,
        checkpoint_every=30,
    )  # fmt: skip
    schedule = dataclasses.replace(config.schedule, warmup_steps=10, decay_steps=30)
    config = dataclasses.replace(
        config, out=str(folder / "steps"), training=training, schedule=schedule
    )
    if not tiny:
        return config
    model = dataclasses.replace(
        config.model, vocab_size=512, max_len=64, num_layers=2, d_model=64, num_heads=2
    )
    tokenizer = dataclasses.replace(config.tokenizer, vocab_size=512)
    return dataclasses.replace(config, model=model, tokenizer=tokenizer)


def steps(folder: pathlib.Path, tiny: bool) -> Iterator[str]:
    """Steps of a model of 124 M parameters, and what a plan says of them."""
    config = model_config(folder, tiny)
    train_run(config, profile=TRACED)
    for record in read_metrics(folder / "steps"):
        if "seconds_per_step" in record:
            names = (
                "tokens_per_second",
                "seconds_per_step",
                "flops_utilization",
                "peak_memory_bytes",
            )
            shown = [f"{name} {record[name]:.4g}" for name in names if name in record]
            yield f"- step {record['step']}: {', '.join(shown)}"
    accelerator = accelerator_of(jax.local_devices()[0])
    if accelerator is None:
        yield "- skipped: the plan, because it does not know this kind of device"
    else:
        yield from plan(config, accelerator)


def plan(config: ExperimentConfig, accelerator: Accelerator) -> Iterator[str]:
    """What a step takes at least by `jaxformer plan`."""
    count = jax.local_device_count()
    places: dict[str, Any] = {"num_devices": count}
    if accelerator.platform == "tpu":
        if count not in TOPOLOGIES:
            yield f"- skipped: the plan, for lack of a topology of {count} chips"
            return
        places = {"topology": TOPOLOGIES[count][accelerator.name in ("v4", "v5p")]}
    training_plan = make_plan(config, accelerator, **places)
    bounds = ", ".join(f"{name} {seconds:.4g} s" for name, seconds in training_plan.seconds.items())
    yield f"- at least, by the plan: {bounds}; memory {readable_bytes(training_plan.needs.total)}"


def trace(folder: pathlib.Path) -> Iterator[str]:
    """Where the time of the traced steps went."""
    profile = read_profile(folder / "steps")
    for name, parts in (("device", profile.device_seconds), ("host", profile.host_seconds)):
        for part, seconds in parts.items():
            yield f"- {name}, {part}: {1000 * seconds:.4g} ms a step"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("first_hour.md"))
    parser.add_argument("--tiny", action="store_true", help="small sizes, for a try on a CPU")
    options = parser.parse_args()
    shape = (1, 160, 2, 64) if options.tiny else (2, 1024, 8, 64)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sections: dict[str, Callable[[], Iterator[str]]] = {
            "Devices": devices,
            "Attention contract": contract,
            "Attention implementations": functools.partial(implementations, shape),
            "Quickstart": functools.partial(quickstart, folder, 10 if options.tiny else 500),
            "Steps": functools.partial(steps, folder, options.tiny),
            "Trace": functools.partial(trace, folder),
        }
        lines, failed = ["# First hour" + (", at toy sizes" if options.tiny else "")], []
        for heading, section in sections.items():
            lines += ["", f"## {heading}", ""]
            try:
                for line in section():
                    lines.append(line)
                    print(line, flush=True)
            except Exception as error:  # a part that fails must not hide the others
                failed.append(heading)
                lines.append(f"- FAILED: {type(error).__name__}: {error}")
                print(lines[-1], flush=True)
            options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(failed)} of {len(sections)} parts failed; the page is {options.out}")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
