"""Counts what JAX compiles."""

import contextlib

import jax

_COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def counting_compilations():
    """A list with an item for each program that is compiled meanwhile."""
    compilations = []

    def listener(event, *_, **__):
        compilations.extend([event] * (event == _COMPILED))

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield compilations
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
