#!/usr/bin/env bash
# What can only be seen on a graphics card: exactness, no weight overwritten while in use, rates, ratios. Under 6 minutes.
#
#   bash tests/gpu/check.sh            the report goes to ./gpu-report/report.json
#   OUT=folder PYTHON=python3 bash tests/gpu/check.sh
#
# Needs no network, writes its models itself (about 3 GB in the temporary folder). Where there is no CUDA it says so and
# ends with 0; it ends with 1 when something is wrong.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

out=${OUT:-gpu-report}
python=${PYTHON:-}
if [ -z "$python" ]; then
    python=python3
    [ -x .venv/bin/python ] && python=.venv/bin/python
fi
export HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
limit=()
command -v timeout >/dev/null && limit=(timeout --kill-after=5 355)
exec ${limit[@]+"${limit[@]}"} "$python" -m tests.gpu.check --out "$out" "$@"
