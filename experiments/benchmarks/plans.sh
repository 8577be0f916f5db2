#!/usr/bin/env bash
# Plans of three models on 1, 8 and 256 TPUs v5e, made by the TPU's compiler: no TPU is needed, but
# pip install -e ".[tpu]". A plan takes the compiler minutes.
#
# Run: bash experiments/benchmarks/plans.sh
cd "$(dirname "$0")/../.." || exit 1

plan() { # plan NAME TOPOLOGY FLAGS: status 1, of what does not fit, ends nothing
  echo "== $1 on $2"
  jaxformer plan configs/gpt2_124m.toml --accelerator v5e --topology "$2" "${@:3}"
  echo
}

# GPT-2 small; a batch of 512 x 1024 tokens.
plan 124M 1x1
plan 124M 2x4 --training.accumulate-steps 4
plan 124M 16x16 --training.accumulate-steps 1

# GPT-3 XL (Brown et al., 2020, table 2.1); a batch of 512 x 2048 tokens.
xl=(--model.num-layers 24 --model.d-model 2048 --model.num-heads 16 --model.max-len 2048
  --training.steps 25000)
plan 1.3B 1x1 "${xl[@]}" --training.accumulate-steps 512
plan 1.3B 2x4 "${xl[@]}" --training.accumulate-steps 32 --mesh.fsdp 8
plan 1.3B 16x16 "${xl[@]}" --training.accumulate-steps 1 --mesh.fsdp 16

# The sizes of Llama 3 8B (2024); a batch of 256 x 4096 tokens.
llama=(--model.num-layers 32 --model.d-model 4096 --model.num-heads 32 --model.num-kv-heads 8
  --model.d-ff 14336 --model.activation swiglu --model.norm rms_norm --model.positions rotary
  --model.use-bias false --model.tied-embeddings false --model.vocab-size 128256 --model.max-len 4096
  --model.dropout-rate 0 --model.remat full --training.batch-size 256 --training.steps 160000)
plan 8B 1x1 "${llama[@]}" --training.accumulate-steps 256
plan 8B 2x4 "${llama[@]}" --training.accumulate-steps 32 --mesh.fsdp 8
plan 8B 16x16 "${llama[@]}" --training.accumulate-steps 1 --mesh.fsdp 256
