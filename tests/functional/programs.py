"""What a traced program computes, calls and loops included."""

import jax
from jax.extend import core


def called_by(equation):
    """Programs that an equation calls; where they differ by platform, that for a CPU."""
    params = dict(equation.params)
    if (platforms := params.pop("branches_platforms", None)) is not None:
        params["branches"] = params["branches"][platforms.index(("cpu",))]
    for inner in jax.tree.leaves(
        list(params.values()), is_leaf=lambda x: isinstance(x, core.ClosedJaxpr)
    ):
        if isinstance(inner, core.ClosedJaxpr):
            yield inner.jaxpr
        elif isinstance(inner, core.Jaxpr):
            yield inner


def shapes_of(jaxpr, shapes):
    """Collects the shapes of everything that a program computes, calls included."""
    for equation in jaxpr.eqns:
        shapes |= {variable.aval.shape for variable in equation.outvars}
        for inner in called_by(equation):
            shapes_of(inner, shapes)
    return shapes
