# Set-up shared by quickstart.sh and test.sh: sourced, not run. Installs only what is missing, and is quick when nothing is.
#   setup_packages [--tests]  what the build needs, through apt (sudo if not root); --tests adds what the suites need
#   setup_nvrtc               cuda.h, nvrtc.h and the NVRTC library: of an installed toolkit, else pinned wheels in .deps/venv
#   setup_old_nvrtc           the oldest supported NVRTC, for the compile suite: sets old_nvrtc to its path
#   setup_configure PRESET    cmake --preset, with what the set-up found
# Debian 12 and Ubuntu 24.04 are known. Without apt the missing packages are named and nothing is installed.

nvrtc_wheels=(nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96)
old_nvrtc_wheel=nvidia-cuda-nvrtc-cu12==12.4.127
oldest_cuda=12040        # as CUDA_VERSION in cuda.h
clang_format=clang-format-14 # versions format differently: the files are formatted by this one
fuzzer_runtime='/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a'
jobs=${jobs:-$(nproc)}

# One line a package: its name, then what shows that it is there: a command, a header's name, or an absolute path (globs allowed).
build_packages='
    ca-certificates     /etc/ssl/certs/ca-certificates.crt
    g++                 g++
    cmake               cmake
    ninja-build         ninja
    libspdlog-dev       spdlog/spdlog.h
    libfmt-dev          fmt/format.h
    nlohmann-json3-dev  nlohmann/json.hpp
    libcli11-dev        CLI/CLI.hpp
    libxxhash-dev       xxhash.h
    catch2              catch2/catch*.hpp
    python3             python3'
test_packages='
    git                 git
    pkg-config          pkg-config'
# What the library does without, where the distribution does not have it: signatures, compressed bundles, a remote.
optional_build_packages='
    libzstd-dev         zstd.h
    libssl-dev          openssl/hmac.h
    libcurl4-openssl-dev curl/curl.h'
# Suites that need one of these are skipped where the distribution does not have it.
optional_test_packages="
    clang               clang++
    libclang-rt-dev     $fuzzer_runtime
    $clang_format       $clang_format
    nginx               /usr/sbin/nginx"

step() { printf '== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

is_there() {
    case $1 in
        /*) compgen -G "$1" >/dev/null ;;
        *.h | *.hpp) compgen -G "/usr/include/$1" >/dev/null || compgen -G "/usr/include/*-linux-gnu/$1" >/dev/null || compgen -G "/usr/local/include/$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

# The packages of a list that are not there.
missing_of() {
    local package probe
    while read -r package probe; do
        [ -z "$package" ] || is_there "$probe" || echo "$package"
    done <<<"$1"
}

can_install() { command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }; }

apt_update() {
    as_root=()
    command -v apt-get >/dev/null || fail "no apt-get here; install these by hand, then run this again: $*"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "neither root nor sudo; install these by hand, then run this again: $*"
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq </dev/null || fail "apt-get update failed; its messages are above"
}

apt_install() {
    step "apt: installing $*"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null ||
        fail "apt-get could not install: $*"
}

setup_packages() {
    local required=$build_packages optional=$optional_build_packages package missing wished
    [ "${1-}" = --tests ] && required+=$test_packages optional+=$optional_test_packages
    mapfile -t missing < <(missing_of "$required")
    mapfile -t wished < <(missing_of "$optional")
    if [ ${#missing[@]} = 0 ] && [ ${#wished[@]} != 0 ] && ! can_install; then
        step "packages: done without ${wished[*]}, which nobody here may install"
        wished=()
    fi
    if [ ${#missing[@]} != 0 ] || [ ${#wished[@]} != 0 ]; then
        apt_update "${missing[@]}"
        for package in "${wished[@]}"; do
            if apt-cache show "$package" >/dev/null 2>&1; then missing+=("$package"); else step "apt: no package $package here"; fi
        done
        [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
    fi
    step "packages: all there"
    [ "$(g++ -dumpversion | cut -d. -f1)" -ge 12 ] || fail "g++ is $(g++ -dumpversion): 12 or newer is needed"
    local cmake_version
    cmake_version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
    printf '3.25\n%s\n' "$cmake_version" | sort -CV || fail "cmake is $cmake_version: 3.25 or newer is needed"
}

# The directory of cuda.h and nvrtc.h in a toolkit that is new enough and has the NVRTC library.
toolkit_include() {
    local root version
    for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
        [ -n "$root" ] && [ -f "$root/include/nvrtc.h" ] && compgen -G "$root/lib64/libnvrtc.so.*" >/dev/null || continue
        version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$root/include/cuda.h")
        [ "${version:-0}" -ge $oldest_cuda ] && echo "$root/include" && return
    done
    return 1
}

make_venv() {
    [ -x .deps/venv/bin/pip ] && return
    python3 -c 'import ensurepip, venv' 2>/dev/null || { apt_update python3-venv; apt_install python3-venv; }
    python3 -m venv .deps/venv || fail "python3 could not make a virtual environment in .deps/venv"
}

setup_nvrtc() {
    if cuda_include=$(toolkit_include); then
        step "CUDA headers and NVRTC: toolkit at ${cuda_include%/include}"
        return
    fi
    make_venv
    # The marker holds the pinned versions, so that a later pin is installed and an unchanged one costs nothing.
    if [ "$(cat .deps/venv/wheels 2>/dev/null)" != "${nvrtc_wheels[*]}" ]; then
        step "pip: installing ${nvrtc_wheels[*]} into .deps/venv"
        .deps/venv/bin/pip install -q "${nvrtc_wheels[@]}" </dev/null || fail "pip could not install ${nvrtc_wheels[*]}"
        echo "${nvrtc_wheels[*]}" >.deps/venv/wheels
    fi
    cuda_include=$(dirname "$(compgen -G "$PWD/.deps/venv/lib/python3*/site-packages/nvidia/*/include/cuda.h" | head -n 1)")
    export XQAJIT_NVRTC_PATH=${XQAJIT_NVRTC_PATH:-$(compgen -G "${cuda_include%/include}/lib/libnvrtc.so.[0-9]*" | head -n 1)}
    step "CUDA headers and NVRTC: wheels in .deps/venv (XQAJIT_NVRTC_PATH=$XQAJIT_NVRTC_PATH)"
}

setup_old_nvrtc() {
    make_venv
    old_nvrtc=$PWD/.deps/nvrtc-12.4/nvidia/cuda_nvrtc/lib/libnvrtc.so.12
    if [ ! -f "$old_nvrtc" ]; then
        step "pip: installing $old_nvrtc_wheel into .deps/nvrtc-12.4"
        .deps/venv/bin/pip install -q --target .deps/nvrtc-12.4 "$old_nvrtc_wheel" </dev/null || fail "pip could not install $old_nvrtc_wheel"
    fi
    step "oldest supported NVRTC: $old_nvrtc_wheel"
}

setup_configure() {
    local preset=$1 launcher=()
    shift
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    cmake --preset "$preset" -DXQAJIT_CUDA_INCLUDE="$cuda_include" "${launcher[@]}" "$@" </dev/null
}
