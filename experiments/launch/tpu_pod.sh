#!/bin/bash
# Trains on all hosts of a TPU pod slice: bash experiments/launch/tpu_pod.sh
# Lines marked CHANGE are for you. The processes find each other by the metadata of the TPU.

set -euo pipefail

TPU="my-tpu"                                # CHANGE: name of the TPU VM
ZONE="us-central2-b"                        # CHANGE: its zone
PROJECT="my-project"                        # CHANGE: its project
CONFIG="quickstart"                         # CHANGE: config, or name of a built-in one
FLAGS=""                                    # CHANGE: such as "--data.paths 'gs://my-bucket/*.txt'"
OUT="gs://my-bucket/runs/quickstart"        # CHANGE: run folder, in a bucket
PYTHON="python3"                            # CHANGE: Python of the hosts, 3.11 or newer
INSTALL="$PYTHON -m pip install --quiet 'jaxformer[tpu,gcs]'"  # CHANGE: how jaxformer comes there

on_all_hosts() {
  gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --project="$PROJECT" --worker=all \
    --command="$1"
}

on_all_hosts "$INSTALL"
# The same command goes on after an interruption. To outlive ssh: nohup in front, and behind it
# >train.log 2>&1 </dev/null &
on_all_hosts "$PYTHON -m jaxformer train '$CONFIG' $FLAGS --out '$OUT' --coordinator auto --host-timeout 60"
