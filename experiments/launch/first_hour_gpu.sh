#!/bin/bash
# Tries jaxformer on a machine with NVIDIA GPUs, about an hour: bash experiments/launch/first_hour_gpu.sh
# Lines marked CHANGE are for you. Writes first_hour.md: which parts passed, how exact, how fast.

set -euo pipefail

PYTHON="python3"                            # CHANGE: Python 3.11 or newer
ENVIRONMENT="$HOME/jaxformer-first-hour"    # CHANGE: folder of the virtual environment to make
EXTRA="cuda13"                              # CHANGE: cuda12 for older drivers

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
"$PYTHON" -m venv "$ENVIRONMENT"
"$ENVIRONMENT/bin/pip" install --quiet -e ".[$EXTRA]"
"$ENVIRONMENT/bin/python" experiments/launch/first_hour.py --out first_hour.md "$@"
