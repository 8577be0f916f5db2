"""Times decoding against `generate` of transformers: greedy GPT-2 124M, and beam search of Marian.

    python experiments/benchmarks/generation.py --task greedy
    python experiments/benchmarks/generation.py --task beams # 4 beams of a 6 + 6 layer translator

Both libraries load the same random weights, float32, from one folder in the format of Hugging Face,
run by turns on all cores, and must choose the same tokens. Speeds count the new tokens of all rows;
in a beam search, those of each row's best hypothesis. The greedy task also prints how many bytes of
parameters are read per second, each forward pass reading all once, as a share of what the fastest
plain read of an array of 1 GiB reaches, by turns with the others. Fresh processes, also in turn,
then measure the time from the start of Python to the first token, loading included, and how much of
it JAX's compilation cache saves. Where torch or transformers is missing, jaxformer is timed alone.
"""

import argparse
import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from timing import interleaved, ratio

GPT2 = pathlib.Path(__file__).parents[2] / "configs" / "gpt2_124m.toml"
END = 0  # of Marian's sentences; the last id is padding, with which a translation starts
NUM_BEAMS = 4
ARRAY_BYTES = 2**30
BATCHES = {"greedy": (1, 8), "beams": (1, 16)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=BATCHES, default="greedy")
    parser.add_argument("--layers", type=int, help="of each half")
    parser.add_argument("--width", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--prompt-tokens", type=int, default=12)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5, help="turns")
    parser.add_argument("--starts", type=int, default=3, help="turns of fresh processes")
    parser.add_argument(
        "--first-token", nargs=2, metavar=("LIBRARY", "FOLDER"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.first_token:
        return first_token(*options.first_token, options)
    print(f"{processor()}, {os.cpu_count()} cores")
    has_libraries = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    if not has_libraries:
        print("jaxformer alone: torch and transformers are not installed")
    makers = {"jaxformer": jaxformer_program} | (
        {"transformers": torch_program} if has_libraries else {}
    )
    with tempfile.TemporaryDirectory() as folder:
        write(pathlib.Path(folder, "model"), options)
        speeds(pathlib.Path(folder, "model"), makers, options)
        starts(pathlib.Path(folder), makers, options)


def processor():
    """Name of the processor."""
    try:
        return re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def write(folder, options):
    """Writes a model of random weights, that continues every prompt in its own way."""
    import jax

    from jaxformer.config import ModelConfig, SinusoidalConfig, load_config
    from jaxformer.interop import HuggingFaceModel, save_huggingface
    from jaxformer.models import Decoder, EncoderDecoder

    if options.task == "greedy":
        config, model_type = load_config(GPT2).model, "gpt2"
    else:
        config, model_type = ModelConfig(
            architecture="encoder_decoder", vocab_size=60_000, max_len=512, num_layers=6,
            d_model=512, num_heads=8, positions=SinusoidalConfig(layout="half"),
            norm_position="post", activation="silu", scale_embeddings=True, output_bias=True,
        ), "marian"  # fmt: skip
    chosen = {
        "num_layers": options.layers, "d_model": options.width, "num_heads": options.heads,
        "vocab_size": options.vocab_size,
    }  # fmt: skip
    # Of narrower weights, the tied embedding makes every next token that before it.
    changes = {name: value for name, value in chosen.items() if value is not None}
    config = dataclasses.replace(config, dtype="float32", init_std=0.1, **changes)
    model = {"gpt2": Decoder, "marian": EncoderDecoder}[model_type](config)
    params = model.init_params(jax.random.key(0))
    save_huggingface(folder, HuggingFaceModel(config, params), model_type=model_type)
    if model_type == "marian":
        path = folder / "config.json"
        padding = config.vocab_size - 1
        special = {"eos_token_id": END, "pad_token_id": padding, "decoder_start_token_id": padding}
        path.write_text(json.dumps(json.loads(path.read_text()) | special))


def prompts(batch_size, vocab_size, length):
    return np.random.default_rng(0).integers(1, vocab_size - 1, (batch_size, length))


def jaxformer_program(folder, options, new_tokens):
    """Loads the model; returns a function of rows of tokens to rows of new ones, and the size V."""
    import jax

    from jaxformer.config import BeamSearchConfig, SamplingConfig
    from jaxformer.inference import generate, translate
    from jaxformer.interop import load_huggingface

    loaded = load_huggingface(folder)
    vocab_size = loaded.config.vocab_size

    def greedy(rows):
        return np.stack(generate(
            loaded.model, loaded.params, rows.tolist(), max_new_tokens=new_tokens,
            rng=jax.random.key(0), sampling=SamplingConfig(temperature=0),
        ))  # fmt: skip

    def beams(rows):
        translations = translate(
            loaded.model, loaded.params, rows.tolist(),
            start_token=vocab_size - 1, end_tokens=[END],
            search=BeamSearchConfig(beam_size=NUM_BEAMS), max_new_tokens=new_tokens,
            forbidden_tokens=(vocab_size - 1,),
        )  # fmt: skip
        return [best.tokens for best, *_ in translations]

    return {"greedy": greedy, "beams": beams}[options.task], vocab_size


def torch_program(folder, options, new_tokens):
    """Like `jaxformer_program`, for transformers' defaults: sdpa attention, dynamic cache."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(os.cpu_count())
    kind = {"greedy": "AutoModelForCausalLM", "beams": "AutoModelForSeq2SeqLM"}[options.task]
    model = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def run(rows):
        rows = torch.tensor(rows)
        inputs = {"attention_mask": torch.ones_like(rows), "max_new_tokens": new_tokens}
        if options.task == "greedy":
            texts = model.generate(
                rows, do_sample=False, eos_token_id=None, pad_token_id=0, **inputs
            )
            return texts[:, rows.shape[1] :].numpy()
        texts = model.generate(
            rows, do_sample=False, num_beams=NUM_BEAMS, forced_eos_token_id=None,
            bad_words_ids=[[model.config.pad_token_id]], **inputs
        )  # fmt: skip
        rows = texts[:, 1:].numpy()
        return [row[: np.append(row == END, True).argmax()] for row in rows]

    return run, model.config.vocab_size


def parameter_bytes(folder):
    """Bytes of the parameters that a forward pass of GPT-2 reads: all but the positions' table."""
    config = json.loads((folder / "config.json").read_text())
    files = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return files - 4 * config["n_positions"] * config["n_embd"]


def reading_programs():
    """Programs that read `ARRAY_BYTES` of float32, much more than fits in the caches."""
    import jax
    import jax.numpy as jnp

    rows = jnp.ones((2**14, ARRAY_BYTES // 2**16))
    functions = {"sum": jnp.sum, "maxima": lambda x: x.max(1), "product": lambda x: x @ x[0]}
    return {
        name: functools.partial(jax.jit(function), rows) for name, function in functions.items()
    }


def speeds(folder, makers, options):
    """Prints the speed of each library at each batch size, and the ratio."""
    loaded = {name: make(folder, options, options.new_tokens) for name, make in makers.items()}
    vocab_size = loaded["jaxformer"][1]
    for batch_size in BATCHES[options.task]:
        rows = prompts(batch_size, vocab_size, options.prompt_tokens)
        programs = {name: functools.partial(run, rows) for name, (run, _) in loaded.items()}
        start = time.perf_counter()
        tokens = programs["jaxformer"]()
        first = time.perf_counter() - start
        if "transformers" in programs:
            for tokens_here, tokens_there in zip(tokens, programs["transformers"](), strict=True):
                np.testing.assert_array_equal(tokens_here, tokens_there)
        reads = reading_programs() if options.task == "greedy" else {}
        times = interleaved(programs | reads, options.repeats)
        bandwidth = max((ARRAY_BYTES / min(times.pop(name)) for name in reads), default=None)
        count = sum(len(row) for row in tokens)
        print(f"{options.task}, batch {batch_size}, {count} tokens: first call {first:.1f} s, then")
        for name, seconds in times.items():
            best, median = (count / f(seconds) for f in (min, statistics.median))
            print(f"  {name}: {best:.1f} tokens/s, median {median:.1f}")
            if bandwidth:
                rate = options.new_tokens * parameter_bytes(folder) / min(seconds)
                print(f"    reads {rate / 1e9:.2f} GB/s of parameters, {rate / bandwidth:.0%} of "
                      f"the {bandwidth / 1e9:.1f} GB/s of a plain read")  # fmt: skip
        if "transformers" in times:
            text = ratio(times["transformers"], times["jaxformer"])
            print(f"  same tokens; jaxformer's speed in times of transformers': {text}")


def first_token(library, folder, options):
    """Generates one token, and prints a line when it is there."""
    makers = {"jaxformer": jaxformer_program, "transformers": torch_program}
    run, vocab_size = makers[library](pathlib.Path(folder), options, 1)
    run(prompts(1, vocab_size, options.prompt_tokens))
    print("done", flush=True)


def starts(folder, makers, options):
    """Prints the seconds from the start of a process to its first token."""
    uncached = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    cached = {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    libraries = {name: (name, uncached) for name in makers}
    libraries["jaxformer, compiled before"] = ("jaxformer", cached)

    def start(library, environment):
        command = [sys.executable, __file__, "--task", options.task, "--prompt-tokens"]
        command += [str(options.prompt_tokens), "--first-token", library, str(folder / "model")]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{library} failed: {done.stderr.rstrip().splitlines()[-1]}")

    programs = {name: functools.partial(start, *arguments) for name, arguments in libraries.items()}
    print("from the start of Python to the first token")
    for name, seconds in interleaved(programs, options.starts).items():
        print(f"  {name}: min {min(seconds):.1f} s, median {statistics.median(seconds):.1f} s")


if __name__ == "__main__":
    main()
