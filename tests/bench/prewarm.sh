#!/usr/bin/env bash
# prewarm.sh BIN_DIR OUT.json [JOBS]: how prewarming scales over worker processes, and what one cold compile takes.
# Prewarms the bundled shape list for sm_90a into empty caches, with 1 worker and with JOBS (default: all cores), 3 times each,
# alternating; reports medians. scaling = (seconds with 1) / (seconds with JOBS) / JOBS.
set -euo pipefail
bin=$(cd "${1:?usage: prewarm.sh BIN_DIR OUT.json [JOBS]}" && pwd) out=${2:?usage: prewarm.sh BIN_DIR OUT.json [JOBS]}
jobs=${3:-$(nproc)} root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for round in 1 2 3; do
    for workers in 1 "$jobs"; do
        "$bin/xqajit" prewarm --shapes "$root/tools/shapes/models.json" --arch sm_90a --jobs "$workers" \
            --cache-dir "$scratch/cache-$round-$workers" --json >"$scratch/$workers-$round.json" 2>/dev/null
    done
done
python3 - "$scratch" "$jobs" "$out" <<'PYTHON'
import json, statistics, sys

scratch, jobs, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
reports = {w: [json.load(open(f"{scratch}/{w}-{r}.json")) for r in (1, 2, 3)] for w in (1, jobs)}
seconds = {w: statistics.median(r["summary"]["seconds"] for r in reports[w]) for w in reports}
alone = sorted(k["ms"] for k in reports[1][0]["kernels"])
result = {
    "schema": "xqajit.bench.prewarm/1",
    "protocol": "models.json, sm_90a, empty cache, worker processes; median of 3 runs, 1 and N workers alternating",
    "kernels": reports[1][0]["summary"]["kernels"],
    "workers": jobs,
    "seconds_1_worker": seconds[1],
    "seconds_n_workers": seconds[jobs],
    "scaling": seconds[1] / seconds[jobs] / jobs,
    "cold_compile_ms": {"min": alone[0], "median": statistics.median(alone), "max": alone[-1]},
}
json.dump(result, open(out, "w"), indent=1)
print(json.dumps(result))
PYTHON
