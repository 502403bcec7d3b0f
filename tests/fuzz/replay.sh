#!/bin/sh
# The fuzzers' kept inputs and seeds, replayed: by the program of this build, and by one with address and undefined-behaviour
# sanitizers, which is built here (some seconds).  Run by `make check` in the build folder, with the source folder in $srcdir.
set -eu
source=${srcdir:-.}
folder=$(mktemp -d "${TMPDIR:-/tmp}/kldump-fuzz-XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/corpus"
tests/fuzz/fuzz_seeds "$folder/seeds"
tar -xzf "$source/tests/fuzz/corpus.tar.gz" -C "$folder/corpus"
tests/fuzz/fuzz_replay "$folder/seeds" "$folder/corpus"

if ! echo 'int main(void) { return 0; }' >"$folder/try.c" ||
    ! ${CC:-cc} -fsanitize=address,undefined -o "$folder/try" "$folder/try.c" 2>"$folder/log"; then
    echo "the compiler has no sanitizers: $(head -n 1 "$folder/log")"
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
${CC:-cc} -std=gnu11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE -iquote "$source/src" \
    -o "$folder/replay" "$source"/tests/fuzz/fuzz_container.c "$source"/tests/fuzz/fuzz_pickle.c \
    "$source"/tests/fuzz/fuzz_dump_name.c "$source"/tests/fuzz/fuzz_meta.c "$source"/tests/fuzz/fuzz_replay.c \
    "$source"/src/pt/*.c "$source"/src/base/*.c "$source/src/sglang/dump_name.c" -lm -pthread
"$folder/replay" "$folder/seeds" "$folder/corpus"
