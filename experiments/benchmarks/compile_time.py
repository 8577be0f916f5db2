"""Times compiling a training step by the number of layers: for the CPU, and for a TPU v5e.

The TPU's compiler needs no TPU, but `pip install "jaxformer[tpu]"`; without it, the CPU is timed
alone. Deep models scan their layers, so compiling should hardly depend on the depth.

Run: python experiments/benchmarks/compile_time.py --layers 12 48
"""

import argparse
import functools
import importlib.util
import os
import statistics
from collections.abc import Sequence

# Compiling for a TPU needs none: JAX shall not look for one.
os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}

import jax
from timing import timed

from jaxformer.config import (
    AdamWConfig,
    DataConfig,
    ExperimentConfig,
    ModelConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
)
from jaxformer.planning import ACCELERATORS
from jaxformer.planning.compiler import compile_step, topology_devices
from jaxformer.runs import LanguageModel


def experiment(width: int, layers: int) -> ExperimentConfig:
    return ExperimentConfig(
        model=ModelConfig(
            vocab_size=256, max_len=128, num_layers=layers, d_model=width, num_heads=4
        ),
        data=DataConfig(paths=("none.txt",)),
        tokenizer=TokenizerConfig(kind="byte"),
        optimizer=AdamWConfig(learning_rate=1e-3),
        schedule=ScheduleConfig(name="constant"),
        training=TrainingConfig(steps=1, batch_size=8),
    )


def devices() -> dict[str, Sequence[jax.Device]]:
    """Devices to compile for, by name."""
    devices_of_platform = {"cpu": jax.local_devices(backend="cpu")[:1]}
    if importlib.util.find_spec("libtpu") is None:
        print("without a TPU's compiler, which is not installed")
    else:
        devices_of_platform["v5e"] = topology_devices(ACCELERATORS["v5e"], "1x1")
    return devices_of_platform


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs=2, default=(12, 48))
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if len(set(arguments.layers)) == 1:
        parser.error("--layers must be two different numbers")
    jax.config.update("jax_enable_compilation_cache", False)
    for name, chips in devices().items():
        times: dict[int, list[float]] = {layers: [] for layers in arguments.layers}
        for _ in range(arguments.repeats):
            for layers, seconds in times.items():
                config = experiment(arguments.width, layers)
                model = LanguageModel.without_data(config)
                jax.clear_caches()
                compiling = functools.partial(compile_step, model, chips, chips[0].platform)
                seconds.append(timed(compiling))
        for layers, seconds in times.items():
            print(f"{name}, {layers} layers: traced and compiled in min {min(seconds):.1f} s, "
                  f"median {statistics.median(seconds):.1f} s")  # fmt: skip
        few, many = times.values()
        first, second = times
        print(f"{name}: {second} layers take {min(many) / min(few):.2f} times as long as {first}")


if __name__ == "__main__":
    main()
