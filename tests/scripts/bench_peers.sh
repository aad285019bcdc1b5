#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/bench-peers with programs that pretend to be Python with TensorFlow and PyTorch: its tables, a peer that fails, its
# refusals. No speed is tested here, and nothing is installed.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${COHORT_BUILD_DIR:-$source/build/release}
command -v python3 >/dev/null || { echo "skipped: it needs python3"; exit 77; }
[ -x "$build/bench/cohort-bench" ] || { echo "skipped: cohort-bench is not built"; exit 77; }
export LSAN_OPTIONS="suppressions='$source/tests/ranks/leaks-of-mpi.txt':fast_unwind_on_malloc=0:print_suppressions=0"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }

# A python: `-c ...` asks for a version, calls_tensorflow.py prints times, the others speak the protocol of bench/train.h.
# "compile" fails as a program without a compiler would.
cat >"$scratch/python" <<'END'
#!/usr/bin/env bash
case $1 in
-c) echo 9.8.7; exit ;;
*/calls_tensorflow.py) echo call_op_us 1000; echo input_range_us 2000; exit ;;
esac
[ "${3:-}" != compile ] || { echo "there is no compiler" >&2; exit 1; }
echo first 2.5
while read -r word number; do
    case $word in
    time) echo rates 10 30 20 ;;
    end) break ;;
    esac
done
echo memory 777
END
chmod +x "$scratch/python"
printf '# Text before\n\n<!-- made by scripts/bench-peers -->\n\nold\n\n<!-- end of what scripts/bench-peers makes -->\n\nText behind\n' \
    >"$scratch/document.md"

run() { "$source/scripts/bench-peers" --build "$build" --tensorflow "$scratch/python" --torch "$scratch/python" "$@"; }
run --models mlp_small --turns 1 --seconds 0.05 --json --document "$scratch/document.md" >"$scratch/said" 2>&1 ||
    fail "scripts/bench-peers fails: $(cat "$scratch/said")"
has() { grep -qE -- "$1" "$scratch/document.md" || fail "the document has no line like '$1'"; }
has '^# Text before$'
has '^Text behind$'
has '^Measured on [0-9-]+ by `scripts/bench-peers --models mlp_small --turns 1 --seconds 0.05 --only training,calls`, commit '
has 'TensorFlow 9\.8\.7, PyTorch 9\.8\.7'
has '^\| mlp_small, one device \| [0-9.e+]+ \| [0-9.e+]+ \| 30 \| [0-9.e+]+ \| [0-9.e+]+ \|$'
has '^\| mlp_small, two replicas \| [0-9.e+]+ \| [0-9.e+]+ \|  \| [0-9.e+]+ \| [0-9.e+]+ \|$'
has '^\| an operator, x \* 2 \| [0-9.e+-]+ \| 1000 \| [0-9.e+]+ \|$'
has '^\| Cohort, captured \| [0-9.e+]+ \| [0-9.e+]+ \| [0-9.e+-]+ \| [0-9]+ \| 2\.525908 \|$'
has '^\| TensorFlow, graph \| 30 \| 20 \| [0-9.e+-]+ \| 777 \| 2\.500000 \|$'
has '^\| PyTorch, compile \| failed: there is no compiler \| \| \| \| \|$'
for name in train_mlp_small_peer train_mlp_small_eager_peer; do
    grep -qE "^\{\"name\": \"$name\", \"value\": [0-9.e+]+, \"median\": [0-9.e+]+, \"unit\": \"ratio\", " "$scratch/said" ||
        fail "no figure $name in: $(cat "$scratch/said")"
done
grep -q '^old$' "$scratch/document.md" && fail "the old table is still there"

refuses() { # MESSAGE ARGUMENTS...
    local message=$1
    shift
    "$source/scripts/bench-peers" "$@" >"$scratch/said" 2>&1
    [ $? -eq 2 ] || fail "scripts/bench-peers $* does not exit with 2"
    grep -qF -- "$message" "$scratch/said" || fail "scripts/bench-peers $* says: $(cat "$scratch/said")"
}
refuses "there is no model 'vgg'" --models vgg
refuses "is inside the project" --build "$build" --environments "$source/build/peers"
refuses "there is no cohort-bench in $scratch" --build "$scratch"
refuses "--only 'speed' is neither" --only speed
echo "no marks" >"$scratch/other.md"
refuses "lacks the lines" --build "$build" --tensorflow "$scratch/python" --torch "$scratch/python" --models mlp_small --turns 1 \
    --seconds 0.05 --only calls --document "$scratch/other.md"
grep -qx "no marks" "$scratch/other.md" || fail "a document without marks was changed"
exit $failed
