#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cohort-bench train: every model takes two steps under every strategy, as it is and as a captured function. Losses have the same
# bits where the number of replicas is the same, agree within 1e-5 where it is not, and are those of TensorFlow and PyTorch. Then
# the form of its figures. No speed is tested here.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
bench=${COHORT_BUILD_DIR:-$source/build/release}/bench/cohort-bench
[ -x "$bench" ] || { echo "skipped: cohort-bench is not built"; exit 77; }
# What MPI itself leaks is no failure, as in the tests of ranks.
export LSAN_OPTIONS="suppressions='$source/tests/ranks/leaks-of-mpi.txt':fast_unwind_on_malloc=0:print_suppressions=0"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }

refuses() { # MESSAGE ARGUMENTS...
    local message=$1
    shift
    "$bench" "$@" >"$scratch/out" 2>&1
    [ $? -eq 2 ] || fail "cohort-bench $* does not exit with 2"
    grep -qF -- "$message" "$scratch/out" || fail "cohort-bench $* says: $(head -n 1 "$scratch/out")"
}
refuses "there is no model 'vgg'; use one of mlp_small, mlp, cnn, gpt" train --model vgg
refuses "there is no strategy 'two'; use one of none, one, mirrored2, mpi2" train --strategy two
refuses "--model needs a value" train --model
refuses "--steps '0' is not a number from 1 to 1000000" train --steps 0
refuses "--function belongs to the benchmark train" dispatch --function
refuses "'mlp-one' names no training" --train-mlp-one

# close_to A B: within a relative error of 1e-5.
close_to() { awk -v a="$1" -v b="$2" 'BEGIN { d = a > b ? a - b : b - a; exit !(d <= 1e-5 * (b < 0 ? -b : b)) }'; }

# Lines "MODEL STRATEGY eager|function LOSS LOSS".
"$bench" train --steps 2 >"$scratch/losses" || fail "cohort-bench train --steps 2 fails"
"$bench" train --steps 2 --function >>"$scratch/losses" || fail "cohort-bench train --steps 2 --function fails"
strategies="none one mirrored2 mpi2"
grep -q ' mpi2 ' "$scratch/losses" || strategies="none one mirrored2" # it has said why
for model in mlp_small mlp cnn gpt; do
    read -r _ tensorflow1 tensorflow2 torch1 torch2 < <(grep "^$model	" "$source/bench/peers/first-losses.tsv")
    one=$(sed -n "s/^$model one eager //p" "$scratch/losses")
    two=$(sed -n "s/^$model mirrored2 eager //p" "$scratch/losses")
    for strategy in $strategies; do
        for mode in eager function; do
            losses=$(sed -n "s/^$model $strategy $mode //p" "$scratch/losses")
            read -r first second rest <<<"$losses"
            [ -n "${second:-}" ] && [ -z "${rest:-}" ] || { fail "$model $strategy $mode: not two losses: '$losses'"; continue; }
            expected=$one
            case $strategy in mirrored2 | mpi2) expected=$two ;; esac
            [ "$losses" = "$expected" ] || fail "$model $strategy $mode: $losses, with as many replicas elsewhere $expected"
            for pair in "$first $tensorflow1" "$second $tensorflow2" "$first $torch1" "$second $torch2" "$first ${one% *}" \
                "$second ${one#* }"; do
                # shellcheck disable=SC2086 # two numbers
                close_to $pair || fail "$model $strategy $mode: a loss is not within 1e-5 of another program's: $pair"
            done
        done
    done
done

number='-?[0-9.e+-]+'
form="^\{\"name\": \"[a-z0-9_]+\", \"value\": $number, \"median\": $number, \"unit\": \"[^\"]+\", \"better\": \"(less|more)\", \
\"limit\": ($number|null), \"ratio\": ($number|null)\}\$"
"$bench" --json train --model mlp_small --strategy mirrored2 --function >"$scratch/figures" 2>"$scratch/said" ||
    fail "cohort-bench train --model mlp_small --strategy mirrored2 --function fails: $(cat "$scratch/said")"
grep -vqE "$form" "$scratch/figures" && fail "not in the form: $(cat "$scratch/figures")"
for program in one mirrored2 mirrored2_function; do
    for what in rate first_ms rss_mib held_mib loss; do
        grep -q "\"name\": \"train_mlp_small_${program}_$what\"" "$scratch/figures" || fail "train_mlp_small_${program}_$what is missing"
    done
done
for name in train_mlp_small_mirrored2 train_mlp_small_mirrored2_function; do
    grep -q "\"name\": \"$name\", .*\"unit\": \"ratio\"" "$scratch/figures" || fail "the ratio $name is missing"
done
exit $failed
