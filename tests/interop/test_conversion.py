"""Parts of the conversion that no variant of a family can show alone."""

from jaxformer.config import LayerConfig, RotaryConfig
from jaxformer.interop.conversion.layers import layer_keys


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
