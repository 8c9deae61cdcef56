#!/usr/bin/env bash
# Builds and runs every suite; the last line is "N passed, N failed, N skipped". Exit 1 if anything failed or did not build.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

logs=build/test-logs
passed=0 failed=0 skipped=0 failures=()
old_nvrtc='' finished=''

summary() {
    [ -n "$finished" ] || count_failure "set-up"
    local failure
    for failure in "${failures[@]}"; do step "failed: $failure"; done
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    [ "$failed" = 0 ] || exit 1
}
trap summary EXIT

count_failure() {
    failed=$((failed + 1))
    failures+=("$1")
}

# stage NAME COMMAND...: a step that must work; it is counted as one failure if it does not, and not counted otherwise.
stage() {
    local name=$1 begin=$SECONDS
    shift
    if "$@" >"$logs/$name.log" 2>&1 </dev/null; then
        step "$name: ok, $((SECONDS - begin)) s"
    else
        grep -m 8 -A 12 -E '^FAILED:|error|SUMMARY' "$logs/$name.log" || tail -n 60 "$logs/$name.log"
        step "$name: FAILED, $((SECONDS - begin)) s; the whole log is $logs/$name.log"
        count_failure "$name"
        return 1
    fi
}

# check NAME COMMAND...: a stage that counts as one test.
check() { stage "$@" && passed=$((passed + 1)); }

# suite NAME DIRECTORY [ctest flags...]: the tests of a build directory, or of a folder in it.
suite() {
    local name=$1 directory=$2 begin=$SECONDS counts p f s
    shift 2
    rm -f "$logs/$name.xml"
    ctest --test-dir "$directory" --parallel "$jobs" --no-tests=error --output-junit "$PWD/$logs/$name.xml" "$@" >"$logs/$name.log" 2>&1 </dev/null
    if ! counts=$(python3 tests/junit_counts.py "$logs/$name.xml"); then
        tail -n 20 "$logs/$name.log"
        step "$name: FAILED, no result file; the log is $logs/$name.log"
        count_failure "$name"
        return
    fi
    read -r p f s <<<"${counts##*$'\n'}"
    [ "$f" = 0 ] || printf '%s\n' "${counts%$'\n'*}"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$f" = 0 ] || failures+=("$name ($f)")
    step "$name: $p passed, $f failed, $s skipped, $((SECONDS - begin)) s"
}

# skip NAME WHY
skip() {
    skipped=$((skipped + 1))
    step "$1: skipped, $2"
}

# Builds what it can (-k 0): a file that does not compile fails the stage, and the tests of the others run all the same.
build() { setup_configure "$1" && cmake --build --preset "$1" --parallel "$jobs" --target "${@:2}" -- -k 0; }

formatted() {
    git ls-files -z '*.h' '*.hpp' '*.c' '*.cpp' | xargs -0 "$clang_format" --dry-run -Werror
}

# The fuzzers share the time; each is one test. What they find stays in build/fuzz; tests/fuzz/corpus has what some begin with.
fuzz_seconds=30
run_fuzzers() {
    local fuzzers=(build/fuzz/bin/fuzz_*) fuzzer name seeds
    for fuzzer in "${fuzzers[@]}"; do
        name=$(basename "$fuzzer")
        mkdir -p "build/fuzz/corpus/$name"
        seeds=()
        [ -d "tests/fuzz/corpus/$name" ] && seeds=("tests/fuzz/corpus/$name")
        check "$name" "$fuzzer" -max_total_time=$((fuzz_seconds / ${#fuzzers[@]})) -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "${seeds[@]}"
    done
}

mkdir -p "$logs"
setup_packages --tests
setup_nvrtc
setup_old_nvrtc

if is_there "$clang_format"; then check format formatted; else skip format "no $clang_format"; fi

# Optimised, as users build it: the command line, the installation, the kernels' compile; with a GPU, the kernels.
release=(xqajit xqajit_cli xqajit_worker unit_service torture_cache tests/cli/all tests/compile/all)
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then release+=(tests/gpu/all tests/vectors/all); fi
stage build-release build release "${release[@]}"
suite release-cli build/tests/cli
suite release-install build/tests/consumer
# Sanitizers have an operator new of their own: what a launch allocates is counted without them.
suite release-allocation build/tests/unit/service --tests-regex 'allocates nothing'
# A thousand processes that are killed: many more moments of a write are met at full speed.
suite release-torture build/tests/fault --label-regex torture
suite compile build/tests/compile
XQAJIT_NVRTC_PATH=$old_nvrtc suite compile-oldest-nvrtc build/tests/compile
if [[ ${release[*]} == *gpu* ]]; then
    suite release-gpu build/tests/gpu
    suite release-vectors build/tests/vectors
fi
# The other suites under AddressSanitizer and UndefinedBehaviorSanitizer. (With them NVRTC is slow, and does not find its own parts.)
stage build-asan build asan all
suite asan build/asan --label-exclude 'compile|torture'
# What threads share, under ThreadSanitizer.
stage build-tsan build tsan tests/unit/cache/all tests/unit/service/all
suite tsan-cache build/tsan/tests/unit/cache
suite tsan-service build/tsan/tests/unit/service
if is_there clang++ && is_there "$fuzzer_runtime"; then
    stage build-fuzz build fuzz tests/fuzz/all && run_fuzzers
else
    skip fuzz "no clang with libFuzzer"
fi

finished=1
