#!/usr/bin/env bash
# bundle.sh BIN_DIR OUT.json [CACHE_DIR]: what export and import of a bundle take, signed and verified, and how small it is.
# Of the entries of CACHE_DIR, or of the bundled shape list, compiled for sm_90a and sm_80 first (minutes). Times are whole commands',
# the median of 5; each import goes into an empty directory.
set -euo pipefail
usage="usage: bundle.sh BIN_DIR OUT.json [CACHE_DIR]"
bin=$(cd "${1:?$usage}" && pwd) out=${2:?$usage} root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cache=${3:-$scratch/cache}
[ -n "${3-}" ] ||
    "$bin/xqajit" prewarm --shapes "$root/tools/shapes/models.json" --arch sm_90a,sm_80 --cache-dir "$cache" >"$scratch/prewarm"

(umask 077 && head -c 32 /dev/urandom >"$scratch/key")
export XQAJIT_CACHE_KEY_FILE=$scratch/key
now() { date +%s.%N; }
for run in 1 2 3 4 5; do
    start=$(now)
    "$bin/xqajit" cache export "$scratch/bundle" --cache-dir "$cache" --json >"$scratch/export.json"
    middle=$(now)
    "$bin/xqajit" cache import "$scratch/bundle" --cache-dir "$scratch/import-$run" --json >"$scratch/import.json"
    echo "$start $middle $(now)" >>"$scratch/times"
done
python3 - "$scratch" "$out" <<'PYTHON'
import json, statistics, sys

scratch, out = sys.argv[1:]
exported, imported = (json.load(open(f"{scratch}/{name}.json")) for name in ("export", "import"))
times = [[float(word) for word in line.split()] for line in open(f"{scratch}/times")]
assert exported["entries"] == imported["imported"] == imported["verified"]
result = {
    "schema": "xqajit.bench.bundle/1",
    "entries": exported["entries"],
    "entry_bytes": exported["entry_bytes"],
    "bytes": exported["bytes"],
    "ratio": exported["bytes"] / exported["entry_bytes"],
    "export_seconds": statistics.median(middle - start for start, middle, _ in times),
    "import_seconds": statistics.median(end - middle for _, middle, end in times),
}
json.dump(result, open(out, "w"), indent=1)
print(json.dumps(result))
PYTHON
