"""Parts of the conversion that no variant of a family can show alone."""

import numpy as np
import pytest

from jaxformer.config import LayerConfig, RotaryConfig
from jaxformer.errors import CheckpointError
from jaxformer.interop import load_huggingface
from jaxformer.interop.conversion.layers import layer_keys
from tests.interop.golden import read_golden


def test_layers_are_said_by_the_shortest_first_layers_and_pattern():
    near, far = LayerConfig(local_window_size=4), LayerConfig()
    keys = layer_keys(RotaryConfig(), [far, near, near, near])
    assert (keys["first_layers"], keys["layers"]) == ((far,), (near,))
    keys = layer_keys(RotaryConfig(), [near, far, near, far, near])
    assert (keys["first_layers"], keys["layers"]) == ((), (near, far))
    dense = LayerConfig(experts=False)
    keys = layer_keys(RotaryConfig(), [dense, dense, far, near])
    assert (keys["first_layers"], keys["layers"]) == ((dense, dense), (far, near))
    keys = layer_keys(RotaryConfig(), [dense] * 3)
    assert (keys["first_layers"], keys["layers"]) == ((dense,) * 3, ())


@pytest.mark.parametrize(
    ("name", "is_constant"),
    [
        ("transformer.h.0.attn.rotary_emb.inv_freq", True),
        ("transformer.position_ids", True),
        ("transformer.h.0.attn.rotary_emb.inv_freq2", False),
        ("transformer.h.0.attn.inv_freq", False),
    ],
)
def test_only_known_constants_of_old_versions_may_be_beside_the_weights(
    tmp_path, name, is_constant
):
    golden = read_golden("gpt2")
    golden.write(tmp_path, golden.tensors | {name: np.zeros(3, np.float32)})
    if is_constant:
        load_huggingface(tmp_path)
    else:
        with pytest.raises(CheckpointError, match=f"it has {name}, which this model does not have"):
            load_huggingface(tmp_path)
