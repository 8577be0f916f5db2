"""Loading Hugging Face weights: memory, and time compared with reading the file.

    python experiments/benchmarks/loading.py # writes 1 GB into a folder of its own
    python experiments/benchmarks/loading.py --memory # of dtypes, shards, and a mesh of devices

Two layouts: GPT-2's, whose kernels are as here, and Llama's, whose kernels are transposed. Each
turn is a process of its own, which loads the model, and then reads the file into fresh memory.
"""

import argparse
import itertools
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import ModelConfig
from jaxformer.interop import HuggingFaceModel, load_huggingface, save_huggingface
from jaxformer.models import Decoder

LAYOUTS = {
    "gpt2": {"positions": "learned", "activation": "gelu_tanh"},
    "llama": {"norm": "rms_norm", "use_bias": False, "activation": "swiglu"},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocab-size", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5, help="turns")
    parser.add_argument("--memory", action="store_true", help="measure memory alone, of more cases")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--devices", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        return load(pathlib.Path(options.load), options.devices)
    if options.memory:
        return measure_memory(options)
    with tempfile.TemporaryDirectory() as folder:
        for name in LAYOUTS:
            size = write(pathlib.Path(folder, name), name, options)
            print(f"{name}, {size / 1e9:.2f} GB")
        for name in LAYOUTS:
            report(name, pathlib.Path(folder, name), options.repeats)


def measure_memory(options):
    """Prints the memory that loading needs, by dtype, for one file or shards, on 1 or 4 devices."""
    for name, dtype, shards in itertools.product(LAYOUTS, ("float32", "bfloat16"), (1, 5)):
        with tempfile.TemporaryDirectory() as folder:
            size = write(pathlib.Path(folder, name), name, options, dtype=dtype, shards=shards)
            for devices in (1, 4):
                _, _, memory = turn(pathlib.Path(folder, name), devices)
                print(
                    f"{name}, {dtype}, {size / 1e9:.2f} GB, {shards} shards, {devices} devices: "
                    f"memory {memory:.2f} times the parameters",
                    flush=True,
                )


def write(folder, name, options, *, dtype="float32", shards=1):
    """Writes a random model; returns its bytes."""
    config = ModelConfig(
        vocab_size=options.vocab_size, max_len=1024, num_layers=options.layers,
        d_model=options.width, num_heads=options.width // 64, **LAYOUTS[name],
    )  # fmt: skip
    shapes = jax.eval_shape(Decoder(config).init_params, jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.random(leaf.shape, np.float32), shapes)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    size = count * jnp.dtype(dtype).itemsize
    save_huggingface(
        folder, HuggingFaceModel(config, params), model_type=name, dtype=dtype,
        max_shard_bytes=-(-size // shards),
    )  # fmt: skip
    return size


def load(folder, devices):
    """Prints seconds of reading and of loading, and bytes of memory per byte of parameters."""
    if devices > 1:
        jax.config.update("jax_num_cpu_devices", devices)
    jax.devices()
    before = peak_memory()
    start = time.perf_counter()
    loaded = load_huggingface(folder, shardings=split if devices > 1 else None)
    jax.block_until_ready(loaded.params)
    end = time.perf_counter()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(loaded.params))
    memory = (peak_memory() - before) / size
    del loaded
    middle = time.perf_counter()
    for path in sorted(folder.glob("*.safetensors")):
        np.fromfile(path, np.uint8)
    print(time.perf_counter() - middle, end - start, memory)


def split(shapes):
    """Splits each parameter by its longest axis over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("all",))

    def place(leaf):
        longest = max(range(leaf.ndim), key=lambda axis: leaf.shape[axis])
        names = ["all" if axis == longest else None for axis in range(leaf.ndim)]
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names))

    return jax.tree.map(place, shapes)


def peak_memory():
    """Most memory that the process had, in bytes; `getrusage` begins with that of its parent."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])


def turn(folder, devices):
    """What `load` prints in a process of its own."""
    command = [sys.executable, __file__, "--load", str(folder), "--devices", str(devices)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(word) for word in output.split()]


def report(name, folder, repeats):
    """Prints what several processes measured."""
    turns = [turn(folder, 1) for _ in range(repeats)]
    reading, loading, memory = zip(*turns, strict=True)
    ratios = [
        seconds / bytes_seconds for seconds, bytes_seconds in zip(loading, reading, strict=True)
    ]
    print(
        f"{name}: read min {min(reading):.2f} s, load min {min(loading):.2f} s, median "
        f"{statistics.median(loading):.2f} s; ratio min {min(ratios):.2f}, median "
        f"{statistics.median(ratios):.2f}; memory at most {max(memory):.2f} times the parameters"
    )


if __name__ == "__main__":
    main()
