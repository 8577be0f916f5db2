"""What tables of wrong calls are made of, and how a row of them is called and named.

A row is `(wrong arguments, argument to be named, other parts of the error)`. The wrong arguments
replace some of a right call; the parts are looked for in "ClassOfTheError: message".
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import errors
from jaxformer import functional as F

HUGE = 10**12  # elements that no machine has memory for
OBJECTS = np.array([None, "a", 3.0], object)
FLOAT8 = jnp.float8_e4m3fn


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def ints(*shape):
    return np.ones(shape, np.int32)


class Traced:
    """An argument whose value is not known, as under jit."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Traced({self.value!r})"


CACHE = F.KVCache.init(2, 6, num_kv_heads=2, head_dim=4)
WINDOW = F.WindowCache.init(2, 3, num_kv_heads=2, head_dim=4)
BOUND = {
    "KVCache.extend": CACHE, "WindowCache.extend": WINDOW, "AlibiBias.array": F.AlibiBias(ones(2)),
}  # fmt: skip


def function(name):
    """A public function, or a method by its class: of a cache that is there, where it needs one."""
    owner, _, method = name.rpartition(".")
    if not owner:
        return getattr(F, method)
    return getattr(BOUND.get(name, getattr(F, owner)), method)


def call(name, arguments):
    """Calls a function; under jax.jit where an argument is traced."""

    def run(values):
        keywords = {n: _filled(a, iter(values)) for n, a in arguments.items()}
        if name.startswith("ring_"):  # for the devices of a mapped axis
            mapped = jax.vmap(lambda _: function(name)(**keywords), axis_name="sequence")
            return mapped(np.zeros(2))
        result = function(name)(**keywords)
        return result.array(3, 5, (2,)) if isinstance(result, F.Mask) else result

    traced = [_traced_value(a) for a in arguments.values() if _traced_value(a) is not None]
    return jax.jit(run)(traced) if traced else run([])


def _traced_value(argument):
    if isinstance(argument, Traced):
        return argument.value
    if isinstance(argument, F.LinearScaling) and isinstance(argument.factor, Traced):
        return argument.factor.value
    return None


def _filled(argument, values):
    """The argument, with a tracer in place of what is traced."""
    if isinstance(argument, Traced):
        return next(values)
    if isinstance(argument, F.LinearScaling) and isinstance(argument.factor, Traced):
        return argument._replace(factor=next(values))
    return argument


def short(value):
    """A value in the name of a test."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, F.RingLayout):
        fields = [(n, v) for n, v in vars(value).items() if not isinstance(v, jax.sharding.Mesh)]
        value = {n: v for n, v in fields if v is not getattr(F.RingLayout, n)}
    return re.sub(r"\s+|0x\w+", " ", getattr(value, "__name__", repr(value)))[:50]


def described(row):
    name, wrong, *_ = row
    return f"{name}-" + "-".join(f"{n}={short(value)}" for n, value in wrong.items())


def rows_of(calls):
    return [(name, *row) for name, rows in calls.items() for row in rows]


def assert_refused(right, row):
    """By an error of the library's own, before JAX can raise one from somewhere inside."""
    name, wrong, argument, *parts = row
    with pytest.raises(ValueError) as raised:
        call(name, {**right[name], **wrong})
    assert raised.type.__module__ == errors.__name__, repr(raised.value)
    message = str(raised.value)
    assert re.search(rf"(?<![a-z]){argument}s?(?![a-z])", message), message
    for part in parts:
        assert part in f"{raised.type.__name__}: {message}"
    assert len(message) < 1000
