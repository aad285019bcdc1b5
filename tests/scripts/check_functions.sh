# SPDX-License-Identifier: Apache-2.0
# scripts/check-functions accepts 140 lines and 60 kB, and refuses one more.
set -eu
check=$PWD/scripts/check-functions
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

make_function() {
    printf 'static int\nlong_one(void)\n{\n'
    for ((i = 0; i < $1; ++i)); do echo '    ;'; done
    printf '}\n'
}

make_function 140 >fits.c
"$check" fits.c
make_function 141 >long.c
if output=$("$check" long.c); then echo "141 lines were accepted"; exit 1; fi
[ "$output" = "long.c:3: long_one has 141 lines, at most 140" ] || { echo "said: $output"; exit 1; }

head -c 61440 /dev/zero | tr '\0' ' ' >fits.h
"$check" fits.h
head -c 61441 /dev/zero | tr '\0' ' ' >big.h
if "$check" big.h >/dev/null; then echo "61441 bytes were accepted"; exit 1; fi
