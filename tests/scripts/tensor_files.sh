#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files of tensors, against the Python packages that made their formats: tests/scripts/tensor_files.py. The packages
# are installed in a virtual environment outside the tree, where PyPI can be reached; COHORT_SAFETENSORS_PYTHON names a
# Python that has safetensors and NumPy already (and TensorFlow, whose checkpoints are compared then, too).
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cohort=${COHORT_BUILD_DIR:-$source/build/release}/tools/cohort
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=${COHORT_SAFETENSORS_PYTHON:-}

if [ -n "$python" ]; then
    "$python" -c 'import safetensors, numpy' || { echo "FAILED: COHORT_SAFETENSORS_PYTHON is '$python', which does not import safetensors and numpy"; exit 1; }
else
    # One environment for all runs of this user; one that is not complete is made again.
    cache=${XDG_CACHE_HOME:-${HOME:-$scratch}/.cache}/cohort-tests/safetensors-0.8
    python=$cache/bin/python
    if ! "$python" -c 'import safetensors, numpy' 2>"$scratch/log"; then
        mkdir -p "$(dirname "$cache")" && python3 -m venv "$cache" >"$scratch/log" 2>&1 &&
            timeout 300 "$python" -m pip install --quiet --retries 1 --timeout 15 'safetensors>=0.8,<0.9' numpy >"$scratch/log" 2>&1 ||
            exec "$source/scripts/skip-test" "the Python package safetensors cannot be installed: $(tail -1 "$scratch/log")"
    fi
fi
PYTHONDONTWRITEBYTECODE=1 "$python" "$source/tests/scripts/tensor_files.py" "$cohort" "$scratch" "${1:-1}" 2>"$scratch/log" ||
    { tail -5 "$scratch/log"; exit 1; }
