#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/samples.tsv: every code block of the documents (tests/golden/seeds.json) has an example that names it and whose output is
# compared, or waits for logical devices. Says which are missing.
set -u
cd "${COHORT_SOURCE_DIR:-$(dirname "$0")/../..}"
failed=0
fail() { echo "FAILED: $*"; failed=1; }
# The blocks that need logical devices of a TPU; nothing else may be left out.
may_wait=" 001/2 001/10 001/11 "

# check TABLE: prints a line for each fault.
check() {
    local block examples what example missing
    missing=$(comm -23 <(grep -oE '"id": ?"seed[0-9]+/[0-9]+"' tests/golden/seeds.json | grep -oE '[0-9]+/[0-9]+' | sort) \
        <(grep -v '^#' "$1" | cut -f 1 | sort))
    [ -z "$missing" ] || echo "blocks that the table lacks:" "${missing//$'\n'/ }"
    missing=$(grep -v '^#' "$1" | cut -f 1 | sort | uniq -d)
    [ -z "$missing" ] || echo "blocks that the table has twice:" "${missing//$'\n'/ }"
    while IFS=$'\t' read -r block examples what; do
        [ -n "$what" ] || echo "$block: it needs three columns"
        grep -qE "\"id\": ?\"seed$block\"" tests/golden/seeds.json || echo "$block is no block of tests/golden/seeds.json"
        if [ "$examples" = - ]; then
            [[ $may_wait == *" $block "* && $what == "logical devices: "* ]] || echo "$block has no example"
            continue
        fi
        for example in ${examples//,/ }; do
            [ -e "examples/expected/$example.txt" ] || echo "$block: there is no examples/expected/$example.txt"
            [ -e "examples/$example.c" ] || { echo "$block: there is no examples/$example.c"; continue; }
            sed '/\*\/$/{/SPDX/!q}' "examples/$example.c" | grep -qE "seed$block([^0-9]|\$)" ||
                echo "$block: the first comment of examples/$example.c does not name seed$block"
        done
    done < <(grep -v '^#' "$1")
}

said=$(check examples/samples.tsv)
[ -z "$said" ] || fail "$said"

# It notices what is wrong.
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
notices() { # MESSAGE SED-EXPRESSION
    sed -E "$2" examples/samples.tsv >"$scratch"
    check "$scratch" | grep -qxF -- "$1" || fail "after $2 nothing says '$1': $(check "$scratch")"
}
notices "blocks that the table lacks: 002/1" '/^002\/1\t/d'
notices "blocks that the table has twice: 002/3" 's/^002\/4\t/002\/3\t/'
notices "004/1 is no block of tests/golden/seeds.json" 's/^003\/9\t/004\/1\t/'
notices "002/1 has no example" 's/^(002\/1\t)[^\t]*/\1-/'
notices "003/9: there is no examples/99_none.c" 's/^(003\/9\t)[^\t]*/\199_none/'
notices "003/9: the first comment of examples/05_one_device.c does not name seed003/9" 's/^(003\/9\t)[^\t]*/\105_one_device/'
exit $failed
