#!/usr/bin/env bash
# Runs the GPU programs and writes their logs and JSON to one flat folder. Needs the binaries, libcuda and NVRTC: no compiler, no CMake.
set -u

usage() {
    cat <<'USAGE'
usage: tests/gpu/run.sh BIN_DIR OUT_DIR [STAGE...] [--quick]
  BIN_DIR   the build's bin folder, with ../lib beside it
  OUT_DIR   created; gets at most 8 files
  STAGE     vectors tests random models bench memcheck racecheck synccheck (default: all, in this order)
  --quick   smaller counts
XQAJIT_NVRTC_PATH names NVRTC where the loader does not find it; XQAJIT_COMMIT goes into the log.
exit status: 0 all passed, 1 something failed, 2 usage, 3 no GPU
USAGE
}

families="hmma mmha" # each is asked for by name; what it refuses and another serves is skipped
all_stages="vectors tests random models bench memcheck racecheck synccheck"
stages=() positional=() quick=0
for word in "$@"; do
    case "$word" in
        --quick) quick=1 ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option $word" >&2; usage >&2; exit 2 ;;
        *) positional+=("$word") ;;
    esac
done
if [ ${#positional[@]} -lt 2 ]; then usage >&2; exit 2; fi
bin=$(realpath "${positional[0]}") && mkdir -p "${positional[1]}" && out=$(realpath "${positional[1]}") || exit 2
root=$(realpath "$(dirname "$0")/../..")
for stage in "${positional[@]:2}"; do
    case " $all_stages " in
        *" $stage "*) stages+=("$stage") ;;
        *) echo "unknown stage $stage" >&2; usage >&2; exit 2 ;;
    esac
done
if [ ${#stages[@]} -eq 0 ]; then read -ra stages <<<"$all_stages"; fi

export LD_LIBRARY_PATH="$bin/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export XQAJIT_CACHE_DIR="${XQAJIT_CACHE_DIR:-$out.cache}" # shared by all stages; beside the results, not among them
mkdir -p "$XQAJIT_CACHE_DIR" && chmod 700 "$XQAJIT_CACHE_DIR"
if "$bin/xqajit" doctor --json 2>/dev/null | grep -q '"target": *"sm_90a"'; then families="gmma $families"; fi
vectors="$root/tests/vectors"
shapes="$root/tools/shapes/models.json"
random_options=(--count 10000 --kernels 400) sanitized_count=40 model_options=()
if [ $quick = 1 ]; then random_options=(--count 200) sanitized_count=8 model_options=(--name llama); fi
sanitizer=$(command -v compute-sanitizer)
if [ -z "$sanitizer" ] && [ -x /usr/local/cuda/bin/compute-sanitizer ]; then sanitizer=/usr/local/cuda/bin/compute-sanitizer; fi

passed=0 failed=0 skipped=0
rows=()
log="$out/log.txt"
echo "commit ${XQAJIT_COMMIT:-unknown}" >"$log"

# record STAGE OUTCOME SECONDS TEXT
record() {
    rows+=("$(printf '%-28s %-8s %6ss  %s' "$1" "$2" "$3" "$4")")
    echo "${rows[-1]}"
}

# add_counts TEXT: the numbers of "N passed, N failed, N skipped"; false where there are none
add_counts() {
    [[ "$1" =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped ]] || return 1
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2])) skipped=$((skipped + BASH_REMATCH[3]))
}

# run_stage NAME COMMAND...: a program that ends with its counts, or whose exit status alone counts
run_stage() {
    local name=$1 start=$SECONDS text status
    shift
    echo "== $name: $*" >>"$log"
    "$@" >"$out/.stage" 2>&1
    status=$?
    # A stage in which everything was refused has tested nothing.
    if [ $status = 0 ] && grep -qE '^0 passed, [0-9]+ failed, [0-9]+ skipped$' "$out/.stage"; then status=1; fi
    # A long list of passes is of no use to anyone.
    grep -v '^passed ' "$out/.stage" | tail -n 400 >>"$log"
    text=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$|^All tests passed|^test cases:|^host:|^[0-9]+ points:|of a plain read|ERROR SUMMARY|RACECHECK SUMMARY' "$out/.stage" | tail -1)
    rm -f "$out/.stage"
    if [ $status = 3 ] || [ $status = 77 ]; then
        echo "$name: no GPU" >&2
        exit 3
    fi
    if [ $status = 0 ]; then
        add_counts "$text" || passed=$((passed + 1))
        record "$name" passed $((SECONDS - start)) "$text"
    else
        local before=$failed
        add_counts "$text" || true
        if [ $failed = $before ]; then failed=$((failed + 1)); fi # a crash, or a failure without a count
        record "$name" FAILED $((SECONDS - start)) "exit status $status; $text"
    fi
}

# The command itself: a kernel, a roofline and a check through the public interface.
run_command() {
    local base=(--q-dtype bf16 --check) long=(--batch 8 --seq-len 4096)
    run_stage "run bf16" "$bin/xqajit" run "${base[@]}" "${long[@]}" --num-q-heads 32 --num-kv-heads 32 --head-dim 128 --page-size 32
    run_stage "run fp8" "$bin/xqajit" run "${base[@]}" "${long[@]}" --num-q-heads 64 --num-kv-heads 8 --head-dim 128 --page-size 32 --kv-dtype fp8_e4m3
    run_stage "run mla" "$bin/xqajit" run "${base[@]}" "${long[@]}" --num-q-heads 16 --num-kv-heads 1 --head-dim 576 --mla --qk-scale 0.135 --page-size 64
    run_stage "run below the L2" "$bin/xqajit" run "${base[@]}" --batch 1 --seq-len 33 --num-q-heads 8 --num-kv-heads 1 --head-dim 64 --page-size 16
}

# wait_for PID LOG: the log of a program that was started before, and its exit status
wait_for() {
    wait "$1"
    local status=$?
    cat "$2" && rm -f "$2"
    return $status
}

run_sanitizer() {
    local tool=$1
    if [ -z "$sanitizer" ]; then
        skipped=$((skipped + 1))
        record "$tool" skipped 0 "compute-sanitizer is neither on PATH nor in /usr/local/cuda/bin"
        return
    fi
    run_stage "$tool" "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/xqajit_gpu_random" --count $sanitized_count --seed 500 --per-kernel 2 --threads 1
    case $families in gmma*) run_stage "$tool skip" "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/xqajit_gpu_tests" "tiles just below*" ;; esac
    for family in ${families% mmha}; do
        run_stage "$tool vectors $family" "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/xqajit_vectors" "$vectors" --gpu --kernel $family --kv-dtype fp8_e4m3 --split 2
    done
}

for stage in "${stages[@]}"; do
    case $stage in
        vectors)
            run_stage "vectors reference" "$bin/xqajit_vectors" "$vectors"
            for family in $families; do
                run_stage "vectors $family" "$bin/xqajit_vectors" "$vectors" --gpu --kernel $family
                for split in 1 2 8; do
                    run_stage "vectors $family split $split" "$bin/xqajit_vectors" "$vectors" --gpu --kernel $family --split $split
                done
                run_stage "vectors $family invariant" "$bin/xqajit_vectors" "$vectors" --gpu --kernel $family --division invariant
            done
            ;;
        tests)
            run_stage tests "$bin/xqajit_gpu_tests" --durations yes
            # The same bits, also where processes share the GPU: two more of them run beside the one that counts.
            for family in ${families% mmha}; do
                beside=()
                for n in 1 2; do
                    XQAJIT_FORCE_KERNEL=$family "$bin/xqajit_gpu_tests" "[repeat]" >"$out/.beside$n" 2>&1 &
                    beside+=($!)
                done
                XQAJIT_FORCE_KERNEL=$family run_stage "repeat $family" "$bin/xqajit_gpu_tests" "[repeat]"
                for n in 1 2; do
                    run_stage "repeat $family beside $n" wait_for "${beside[n - 1]}" "$out/.beside$n"
                done
            done
            if [ $quick = 0 ]; then
                for family in $families; do
                    # gmma has neither beams nor many rows of small heads, of which some tests are.
                    XQAJIT_FORCE_KERNEL=${family/gmma/gmma,hmma} run_stage "tests $family" "$bin/xqajit_gpu_tests" --durations yes
                done
            fi
            ;;
        random)
            run_stage random "$bin/xqajit_gpu_random" "${random_options[@]}" --json "$out/random.json"
            case $families in gmma*) run_stage "random gmma" "$bin/xqajit_gpu_random" "${random_options[@]}" --family gmma ;; esac
            ;;
        models)
            run_stage models "$bin/xqajit_gpu_models" --shapes "$shapes" "${model_options[@]}" --json "$out/models.json"
            if [ $quick = 0 ]; then
                for family in $families; do
                    XQAJIT_FORCE_KERNEL=$family run_stage "models $family" "$bin/xqajit_gpu_models" --shapes "$shapes" --max-batch 7
                done
            fi
            run_command
            ;;
        bench)
            run_stage "bench mha" "$bin/xqajit" bench --q-dtype bf16 --num-q-heads 32 --num-kv-heads 32 --head-dim 128 --page-size 32 \
                --grid 1x4096,8x512,32x128,1x16384,8x2048,32x512,1x65536,8x8192,32x2048 --csv "$out/bench_mha.csv"
            run_stage "bench shapes" "$bin/xqajit" bench --shapes "$root/tests/bench/shapes.json" --grid 32x4096 --csv "$out/bench_shapes.csv"
            run_stage "bench launch" "$bin/xqajit_bench_launch"
            ;;
        memcheck | racecheck | synccheck) run_sanitizer "$stage" ;;
    esac
done

{
    printf '%s\n' "${rows[@]}"
    echo "$passed passed, $failed failed, $skipped skipped"
} >"$out/summary.txt"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
