#!/usr/bin/env bash
# From a fresh clone to compiled kernels: set-up, build, prewarm the bundled models, look at the cache, explain a shape and, with
# a GPU, run it and check it.
set -euo pipefail
start=$PWD
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: tools/quickstart.sh [--cache-dir DIR] [--jobs N]
  --cache-dir DIR  where compiled kernels go (default: XQAJIT_CACHE_DIR, else XDG_CACHE_HOME/xqajit, else ~/.cache/xqajit)
  --jobs N         parallel compiles (default: the number of cores)
  --help           this text
TEXT
}

cache=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --cache-dir | --jobs)
            [ $# -ge 2 ] || { printf '%s needs a value\n' "$1" >&2; usage >&2; exit 2; }
            case $1$2 in
                --jobs*) jobs=$2 ;;
                --cache-dir/*) cache=(--cache-dir "$2") ;;
                *) cache=(--cache-dir "$start/$2") ;;
            esac
            shift 2
            ;;
        *) printf 'unknown argument: %s\n' "$1" >&2; usage >&2; exit 2 ;;
    esac
done
case ${jobs:-1} in '' | *[!0-9]* | 0) printf -- '--jobs is %s: a number from 1 up is needed\n' "$jobs" >&2; exit 2 ;; esac

source tools/setup.sh
log=build/quickstart.log
xqajit=build/bin/xqajit
shape=(--num-q-heads 64 --num-kv-heads 8 --head-dim 128 --q-dtype bf16 --page-size 32) # llama-3.1-70b
batch=(--batch 8 --seq-len 4096)

setup_packages
setup_nvrtc

step "building (log: $log)"
mkdir -p build
{ setup_configure release && cmake --build --preset release --parallel "$jobs" --target xqajit_cli xqajit_worker; } >"$log" 2>&1 ||
    { tail -n 30 "$log" >&2; fail "the build failed; the whole log is $log"; }

# With a GPU the default is its own architecture.
arch=(--arch sm_90a)
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then arch=(); fi

step "compiling the bundled models' kernels: xqajit prewarm ${arch[*]}"
$xqajit prewarm --shapes tools/shapes/models.json "${arch[@]}" "${cache[@]}" --jobs "$jobs"

step "the cache: xqajit cache ls (first lines)"
$xqajit cache ls "${cache[@]}" | sed -n '1,12p;13s/.*/.../p'
$xqajit cache stats "${cache[@]}"

step "one shape from parameters to launch: xqajit explain ${shape[*]} ${batch[*]} ${arch[*]}"
$xqajit explain "${shape[@]}" "${batch[@]}" "${arch[@]}" "${cache[@]}"

if [ ${#arch[@]} = 0 ]; then
    step "the same shape on this GPU, checked against float64: xqajit run --check"
    $xqajit run "${shape[@]}" "${batch[@]}" "${cache[@]}" --check
else
    step "no GPU here: xqajit run --check is left out"
fi
[ -z "${XQAJIT_NVRTC_PATH:-}" ] || step "for later commands in this shell: export XQAJIT_NVRTC_PATH=$XQAJIT_NVRTC_PATH"
