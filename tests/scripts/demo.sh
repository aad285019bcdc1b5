#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/demo learns, and sees when replicas have not learned the same.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${COHORT_BUILD_DIR:-$source/build/release}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }

"$source/scripts/demo" "$build" >"$scratch/out" 2>&1 || fail "scripts/demo ends with $?"
grep -q 'have learned the same weights, bit by bit' "$scratch/out" || fail "no word on equal weights"
[ "$(grep -c 'epoch 30 of 30' "$scratch/out")" -ge 3 ] || fail "progress is not shown"

# A demo whose runs differ in the last digit of the hash, and one that reads too little.
mkdir -p "$scratch/tree/examples"
for kind in hash accuracy; do
    cat >"$scratch/tree/examples/demo" <<EOF
#!/usr/bin/env bash
case \$1-$kind in
two-cpus-hash) line="two-cpus 0.9800 1.00 000000000000000b 0" ;;
two-cpus-accuracy) line="two-cpus 0.9399 1.00 000000000000000a 0" ;;
*) line="\$1 0.9800 1.00 000000000000000a 0" ;;
esac
echo "\$line" >>"\$5"
EOF
    chmod +x "$scratch/tree/examples/demo"
    "$source/scripts/demo" "$scratch/tree" >"$scratch/out" 2>&1 && fail "a wrong $kind passes"
    grep -q FAILED "$scratch/out" || fail "a wrong $kind is not said loudly"
done
[ $failed -eq 0 ] || cat "$scratch/out"
exit $failed
