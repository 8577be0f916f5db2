"""Every script under experiments/ runs by the commands of its docstring, and gives its table.

But for `run_all.py`, claims and the grammar of the phrasebook, which have tests of their own, and
what needs the TPU's compiler or torch.
"""

import ast
import doctest
import importlib
import os
import pathlib
import re
import runpy
import shlex
import sys
from unittest import mock

import pytest

FOLDER = pathlib.Path("experiments")
MODULES = [*(FOLDER / "seeds").glob("*.py"), *(FOLDER / "phrasebook").glob("*.py")]

# Options that make a script quick, and what its last lines have.
SCRIPTS = {
    "benchmarks/batches.py": (
        "--tokens 5000 --length 16 --batch-size 4 --steps 1 --repeats 1",
        r"4 rows of 16 tokens\n(.*\n){6}16 rows of 128 .*\n(.*\n){5}  MaskedBatches .* eats",
    ),
    "benchmarks/checkpoints.py": (
        "--size tiny --steps 1 --repeats 1 --gigabytes 0.001",
        r"a save adds .* of 100 steps\nverifying 0.00 GiB: min [\d.]+ s, .* s a GiB",
    ),
    "benchmarks/compile_time.py": (
        "--layers 1 2 --width 8 --repeats 1",
        r"cpu, 2 layers: traced and compiled .*\ncpu: 2 layers take [\d.]+ times .*(\nv5e.*)*",
    ),
    "benchmarks/cross_entropy.py": (
        "--batch-size 1 --length 16 --vocab-size 32 --width 8 --chunk-size 8 --repeats 1",
        r"chunked: min +[\d.]+ s .* MB .*\n  time chunked / dense: min [\d.]+, .*; memory 1/[\d.]+",
    ),
    "benchmarks/depth.py": (
        "--depths 1 2 --multiples 1 2 --tokens-per-param 0.05",
        r"depth  parameters .* 1 2  best  time\n +1 .*\n +2 +24,576 .*\nloss ~ FLOPs\^.*",
    ),
    "benchmarks/functional_core.py": (
        "--tiny --repeats 1",
        r"dense: min .* ms, traced and compiled in .*\n .*jax.nn: min .*; speed over it: min .*\n"
        r"(.*\n)+Cross-entropy of a large vocabulary.*\n(.*\n){3}  time chunked / dense: .*",
    ),
    "benchmarks/generation.py": (
        "--layers 1 --width 8 --heads 2 --vocab-size 16 --new-tokens 2 --repeats 1 --starts 1",
        r"(greedy, batch 1, .*: first call .*\n  jaxformer: .*\n    reads [\d.]+ GB/s .*"
        r"|beams, batch 1, .*: first call .*\n  jaxformer: [\d.]+ tokens/s.*)\n(.*\n)+"
        r"from the start of Python to the first token\n(  .*: min [\d.]+ s, median [\d.]+ s\n?)+",
    ),
    "benchmarks/many_runs.py": (
        "--rates 2 --seeds 1 --width 8 --steps 1",
        r"first run: .*\n(each further run: min .*\n){2}sweep of the 2, compiling .* CPU seconds\)",
    ),
    "benchmarks/nanogpt_cpu.py": (
        "--seeds 1 --steps 101",
        r"jaxformer: held-out loss [\d.]+ nats .*; \d+ s of its process, by seed \d+",
    ),
    "benchmarks/start_up.py": (
        "--repeats 1 --model.num-layers 1 --model.d-model 8 --model.num-heads 1",
        r"ratio: of minima .*\n(first step of quickstart, .* cache: min .*\n?){2}",
    ),
    "benchmarks/loading.py": (
        "--layers 1 --width 64 --vocab-size 64 --repeats 1",
        r"(gpt2: read min .*\nllama: read min .* ratio min .* memory at most .* the parameters"
        r"|(.* GB, \d shards, \d devices: memory .* times the parameters\n?){16})",
    ),
    "benchmarks/prepare.py": (
        "--gigabytes 0.001",
        r"prepare: 0.00 GB, .*MB/s\n(.*\n){2}speed .* by turns: \d+%, \d+%, \d+%",
    ),
    "benchmarks/train_step.py": (
        "--size tiny --repeats 1 --matmul-size 64 --no-torch",
        r"plain: min .*, .* of peak, first call .* parameters\ntime plain / jaxformer: min .*",
    ),
    "launch/first_hour.py": (
        "--tiny --out /dev/null",
        r"- auto: all claims hold\n(.*\n)+- splash: skipped: .*\n(.*\n)+"
        r"- device, attention: .*\n(.*\n)+0 of 6 parts failed; the page is .*",
    ),
    "seeds/mistakes.py": ("--steps 1", r"Right: Positional encoding.*\n(.*\n){5}position 4 .*"),
    "seeds/multi_head_and_encoder.py": ("--steps 8", r"by a loop\n(.*\n){10}position 9 .*"),
    "seeds/self_attention_by_hand.py": ("--steps 1", r"Inputs\n(.*\n){6} +it +0\.25 +0\.20 +0\.85"),
    "seeds/self_attention_in_numpy.py": (
        "--steps 1", r"100,000 tokens  10,000,000,000  40,000,000,000",
    ),
    "seeds/transformer_from_scratch.py": ("--steps 2", r"Vocabulary\n(.*\n){14} +with +14"),
}  # fmt: skip

# They start many processes, or train quickstart, which takes a minute.
SLOW = (
    "benchmarks/generation.py", "benchmarks/loading.py", "benchmarks/nanogpt_cpu.py",
    "benchmarks/prepare.py", "benchmarks/start_up.py", "launch/first_hour.py",
)  # fmt: skip
ELSEWHERE = [
    "seeds/run_all.py", "benchmarks/report.py", "benchmarks/tpu_decoding.py",
    "benchmarks/tpu_experts.py", "benchmarks/tpu_programs.py", "benchmarks/tpu_training.py",
    "interop/golden.py", "phrasebook/grammar.py",
]  # fmt: skip


def commands(script):
    """Words after the script's name in each command of its docstring; comments are dropped."""
    text = ast.get_docstring(ast.parse((FOLDER / script).read_text(encoding="utf-8")))
    lines = re.findall(r"python (experiments/.*)", text)
    words = [shlex.split(line, comments=True) for line in lines]
    assert words and {first for first, *_ in words} == {f"experiments/{script}"}
    return [rest for _, *rest in words]


def test_every_script_is_known():
    scripts = [
        str(path.relative_to(FOLDER))
        for path in FOLDER.rglob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
        and path.parent.name != "claims"
    ]
    assert sorted(scripts) == sorted([*SCRIPTS, *ELSEWHERE])


@pytest.mark.parametrize(
    "script", [pytest.param(s, marks=pytest.mark.slow if s in SLOW else ()) for s in SCRIPTS]
)
def test_script_gives_its_table_by_every_command_of_its_docstring(script, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str((FOLDER / script).parent))
    options, table = SCRIPTS[script]
    for words in commands(script):
        monkeypatch.setattr(sys, "argv", [script, *words, *options.split()])
        with mock.patch.dict(os.environ):  # which some scripts change
            runpy.run_path(str(FOLDER / script), run_name="__main__")
        assert re.search(table + r"\n\Z", capsys.readouterr().out)


@pytest.mark.parametrize(
    "stem", [path.stem for path in sorted(MODULES) if ">>> " in path.read_text(encoding="utf-8")]
)
def test_examples_of_the_modules_run(stem):
    failed, tried = doctest.testmod(importlib.import_module(stem))
    assert tried > 0 and failed == 0
