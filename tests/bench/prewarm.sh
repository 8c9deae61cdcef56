#!/usr/bin/env bash
# prewarm.sh BIN_DIR OUT.json [JOBS]: how prewarming scales over worker processes, and what one cold compile takes.
# Prewarms the bundled shape list for sm_90a into empty caches: JOBS workers (default: all cores), 1 worker, JOBS workers again.
# scaling = (seconds with 1) / (mean seconds with JOBS) / JOBS.
set -euo pipefail
bin=$(cd "${1:?usage: prewarm.sh BIN_DIR OUT.json [JOBS]}" && pwd) out=${2:?usage: prewarm.sh BIN_DIR OUT.json [JOBS]}
jobs=${3:-$(nproc)} root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run=0
for workers in "$jobs" 1 "$jobs"; do
    run=$((run + 1))
    "$bin/xqajit" prewarm --shapes "$root/tools/shapes/models.json" --arch sm_90a --jobs "$workers" \
        --cache-dir "$scratch/cache-$run" --json >"$scratch/$run.json" 2>/dev/null
done
python3 - "$scratch" "$jobs" "$out" <<'PYTHON'
import json, statistics, sys

scratch, jobs, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
first, single, second = (json.load(open(f"{scratch}/{run}.json")) for run in (1, 2, 3))
many = (first["summary"]["seconds"] + second["summary"]["seconds"]) / 2
alone = sorted(k["ms"] for k in single["kernels"])
result = {
    "schema": "xqajit.bench.prewarm/1",
    "protocol": "models.json, sm_90a, empty caches, worker processes; N workers, 1 worker, N workers",
    "kernels": single["summary"]["kernels"],
    "workers": jobs,
    "seconds_1_worker": single["summary"]["seconds"],
    "seconds_n_workers": [first["summary"]["seconds"], second["summary"]["seconds"]],
    "scaling": single["summary"]["seconds"] / many / jobs,
    "cold_compile_ms": {"min": alone[0], "median": statistics.median(alone), "max": alone[-1]},
}
json.dump(result, open(out, "w"), indent=1)
print(json.dumps(result))
PYTHON
