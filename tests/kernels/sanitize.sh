#!/bin/sh
# Builds the compute code and tests/kernels/driver.cpp with AddressSanitizer and UBSan, and makes random calls on every
# vector path. Usage: sanitize.sh [calls] [seed]; CXX, FLAGS and RUN are taken from the environment. For example
#   CXX=aarch64-linux-gnu-g++ FLAGS="-O2 -static" RUN=qemu-aarch64 sanitize.sh 2000
set -eu

here=$(cd "$(dirname "$0")" && pwd)
kernels=$here/../../rewriter/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

checks=${FLAGS--g -O1 -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all}
paths=scalar
macros=
case $(${CXX:-c++} -dumpmachine) in x86_64*) paths="scalar avx2" macros=-DWARPFUSE_AVX2 ;; esac

compile() { # folder, flags: every file in it
    for file in "$1"/*.cpp; do
        [ -e "$file" ] || continue
        # shellcheck disable=SC2086
        ${CXX:-c++} -std=c++17 -ffp-contract=off $checks $macros $2 -I"$kernels" -c "$file" \
            -o "$work/$(echo "${file#"$here"}" | tr / _).o"
    done
}

for part in core warp turn; do compile "$kernels/$part" ""; done
if [ -n "$macros" ]; then
    for part in warp turn; do compile "$kernels/$part/avx2" "-mavx2 -mfma -mf16c"; done
fi
compile "$here" ""
# shellcheck disable=SC2086
${CXX:-c++} $checks "$work"/*.o -o "$work/driver"

export WARPFUSE_VECTOR_PATH UBSAN_OPTIONS=print_stacktrace=1
for WARPFUSE_VECTOR_PATH in $paths; do
    ${RUN:-} "$work/driver" "${1:-100000}" "${2:-1}"
    echo "$WARPFUSE_VECTOR_PATH: no finding"
done
