#!/bin/bash
# Trains on several nodes of a SLURM cluster: sbatch experiments/launch/slurm.sh
# Lines marked CHANGE are for you. The processes find each other by what srun tells them.
#SBATCH --job-name=jaxformer
#SBATCH --nodes=2                # CHANGE: number of nodes
#SBATCH --ntasks-per-node=8      # CHANGE: one task for each GPU of a node, of which it uses that one
#SBATCH --gpus-per-node=8        # CHANGE: the same number
#SBATCH --cpus-per-task=8        # CHANGE: cores of a node divided by its tasks
#SBATCH --time=24:00:00          # CHANGE: longest time
#SBATCH --output=slurm-%j.txt
#SBATCH --open-mode=append
#SBATCH --requeue
# SIGTERM to the tasks, two minutes before the time is over: they save and end.
#SBATCH --signal=TERM@120

set -euo pipefail

ENVIRONMENT="$HOME/venv"                    # CHANGE: virtual environment with jaxformer[cuda13]
CONFIG="quickstart"                         # CHANGE: config, or name of a built-in one
FLAGS=()                                    # CHANGE: such as (--data.paths "/shared/corpus/*.txt")
OUT="/shared/$USER/runs/quickstart"         # CHANGE: run folder, on a disk that all nodes share

# shellcheck disable=SC1091
source "$ENVIRONMENT/bin/activate"

# Ends all tasks when one fails; after that the same job can be submitted again, and goes on.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 \
  jaxformer train "$CONFIG" "${FLAGS[@]}" --out "$OUT" --coordinator auto --host-timeout 60
