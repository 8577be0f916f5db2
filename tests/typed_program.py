"""A program as a user would write it, which `mypy --strict` must find nothing in; it is not run."""

import pathlib
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np

import jaxformer
from jaxformer import inference
from jaxformer.config import (
    AdamWConfig,
    LoopConfig,
    ModelConfig,
    RotaryConfig,
    SamplingConfig,
    ScheduleConfig,
    load_config,
)
from jaxformer.errors import ConfigError
from jaxformer.functional import (
    Causal,
    Lengths,
    apply_rotary,
    cross_entropy,
    dot_product_attention,
    rotary_tables,
)
from jaxformer.models import Decoder
from jaxformer.runs import (
    LanguageModel,
    TextModel,
    Translation,
    Translator,
    open_run,
    train_run,
)
from jaxformer.testing import assert_causal
from jaxformer.training import (
    FitResult,
    TrainingData,
    Trial,
    fit,
    make_optimizer,
    make_schedule,
)
from jaxformer.viz import attention_page


def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    tables = rotary_tables(10, head_dim=64)
    query, key = (apply_rotary(x, tables, layout="half") for x in (query, key))
    mask = Causal() & Lengths(keys=jnp.array([10, 7]))
    return dot_product_attention(query, key, value, mask=mask, local_window_size=(4, 0))


def check() -> None:
    assert_causal(attend)


config = ModelConfig(
    vocab_size=100, max_len=64, num_layers=2, d_model=48, num_heads=6, positions=RotaryConfig()
)
model = Decoder(config)


def train(folder: pathlib.Path) -> FitResult:
    def loss(
        params: Any, batch: dict[str, jax.Array], dropout_rng: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        output = model.apply({"params": params}, batch["tokens"])
        return cross_entropy(output.logits, batch["labels"])

    tokens = np.zeros((4, 8), np.int32)
    data = TrainingData([{"tokens": tokens, "labels": tokens}] * 10)
    schedule = make_schedule(1e-3, ScheduleConfig(name="constant"))
    optimizer = make_optimizer(AdamWConfig(learning_rate=1e-3), schedule)
    loop = LoopConfig(steps=10)
    params = model.init(jax.random.key(0), tokens)["params"]
    result = fit(Trial(loss, params, optimizer), data, folder, loop)
    print(result.step, result.evaluation)
    return result


def generate(result: FitResult) -> list[np.ndarray]:
    rows = inference.generate(
        model,
        result.params,
        [[3, 14], [15, 92, 65]],
        max_new_tokens=8,
        rng=jax.random.key(0),
        sampling=SamplingConfig(temperature=0.8, top_k=40),
    )
    return [row[:4] for row in rows]


def use(folder: str) -> str:
    opened = jaxformer.runs.open_run(folder)
    assert_type(opened, TextModel)
    print(opened, opened.evaluate().loss, opened.config.model.d_model)
    model = opened.require(LanguageModel)
    assert_type(model, LanguageModel)
    text = model.generate("The assert", temperature=0.5, top_k=None, max_new_tokens=50, seed=1)
    assert_type(text, str)
    for piece in model.generate_stream("The assert", top_p=0.9):
        print(piece.upper(), end="")
    ids = model.encode(text)
    return model.decode(ids) + model.decode([1, 2, 3]) + model.decode(ids.tolist())


def translate(folder: pathlib.Path) -> list[str]:
    model = open_run(folder, step=100).require(Translator)
    several = model.translate(["good morning"], beam_size=8, num_best=3)
    assert_type(several, list[list[Translation]])
    for _, translations in model.translate_stream(["good morning"], early_stopping="never"):
        print(f"{translations[0].score:.3f}", translations[0].text)
    pathlib.Path("attention.html").write_text(attention_page(model.attention("good morning")))
    return [several[0][0].text]


def main() -> None:
    try:
        result = train_run(load_config("configs/quickstart.toml"))
    except ConfigError as error:
        print(error)
    else:
        print(result.step, jaxformer.__version__)
