#!/usr/bin/env bash
# One check of the installed tree. usage: check_install.sh CHECK SOURCE_DIR BUILD_DIR WORK_DIR VERSION
set -euo pipefail
check=$1 source=$2 build=$3 work=$4 version=$5
prefix=$work/moved
project=$source/tests/consumer/project
strict=(-Wall -Wextra -pedantic -Werror)

run_consumers() { # DIRECTORY
    local program
    for program in consumer_c consumer_cpp; do
        "$1/$program" "$work/cache" | tee "$1/$program.out"
        grep -qx "xqajit $version" "$1/$program.out"
    done
}

pkg_flags() { PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config "$@" xqajit; }

install_and_move() { # the later checks use the moved tree, so that nothing may depend on where it was installed
    rm -rf "$work"
    cmake --install "$build" --prefix "$work/installed" >/dev/null
    mv "$work/installed" "$prefix"
    local file
    for file in lib/libxqajit.so include/xqajit/xqajit.h include/xqajit/xqajit.hpp bin/xqajit libexec/xqajit/xqajit-worker \
        share/xqajit/models.json; do
        [ -e "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
    done
}

find_package() {
    cmake -S "$project" -B "$work/find_package" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DWANTED_VERSION="$version"
    cmake --build "$work/find_package"
    run_consumers "$work/find_package"
}

pkg_config() {
    local out=$work/pkg_config flags
    [ "$(pkg_flags --modversion)" = "$version" ]
    read -ra flags <<<"$(pkg_flags --cflags --libs) -Wl,-rpath,$prefix/lib"
    mkdir -p "$out"
    cc -std=c99 "${strict[@]}" "$project/consumer.c" "${flags[@]}" -o "$out/consumer_c"
    c++ -std=c++17 "${strict[@]}" "$project/consumer.cpp" "${flags[@]}" -o "$out/consumer_cpp"
    run_consumers "$out"
}

readme_example() { # the C++ of README.md, word for word
    sed -n '/^```cpp$/,/^```$/{/^```/d;p}' "$source/README.md" >"$work/readme.cpp"
    [ -s "$work/readme.cpp" ]
    local flags
    read -ra flags <<<"$(pkg_flags --cflags --libs)"
    c++ -std=c++17 "${strict[@]}" -shared -fPIC -Wl,--no-undefined "$work/readme.cpp" "${flags[@]}" -o "$work/readme.so"
}

command_line() { # without help from the environment
    env -u LD_LIBRARY_PATH -u XQAJIT_WORKER "$prefix/bin/xqajit" --version | grep -F "$version"
}

dependencies() { # CUDA and every package are found or compiled in, so that the library loads anywhere
    local file foreign
    for file in lib/libxqajit.so bin/xqajit libexec/xqajit/xqajit-worker; do
        foreign=$(readelf -d "$prefix/$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
            grep -vE '^(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux[-a-z0-9]*|libxqajit)\.so' || true)
        [ -z "$foreign" ] || { echo "$file needs $foreign"; exit 1; }
    done
}

symbols() {
    local foreign
    foreign=$(nm -D --defined-only --format=posix "$prefix/lib/libxqajit.so" | awk '$2 != "A" && $1 !~ /^xqajit_/ {print $1}')
    [ -z "$foreign" ] || { echo "exported beside the C interface:"; head -n 20 <<<"$foreign"; exit 1; }
}

"$check"
