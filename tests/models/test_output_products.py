"""Logits and losses by the products that an embedding brings."""

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig
from jaxformer.functional import Products
from jaxformer.models import Decoder
from jaxformer.modules.embedding import Embedding
from jaxformer.training import language_model_loss
from jaxformer.training import losses as losses_module

CONFIG = ModelConfig(vocab_size=11, max_len=7, num_layers=1, d_model=4, num_heads=2)
TOKENS = np.random.default_rng(0).integers(11, size=(2, 7))


def tripled(*arguments, **options):
    return 3 * jax.lax.dot_general(*arguments, **options)


def test_losses_in_chunks_have_the_products_of_the_embedding(monkeypatch):
    def decoder(products):
        return Decoder(CONFIG, shared_embedding=Embedding(CONFIG, products=products))

    model = decoder(Products(dot_general=tripled))
    params = model.init_params(jax.random.key(0))
    batch = {"tokens": TOKENS, "labels": TOKENS}
    losses = []
    for limit in (losses_module._MAX_LOGITS, 0):
        monkeypatch.setattr(losses_module, "_MAX_LOGITS", limit)
        losses.append(float(jax.jit(language_model_loss(model))(params, batch, None)[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    plain = float(jax.jit(language_model_loss(decoder(Products())))(params, batch, None)[0])
    assert losses[1] != pytest.approx(plain, rel=1e-2)
