#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program `cohort`: what it prints, and what it refuses.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cohort=${COHORT_BUILD_DIR:-$source/build/release}/tools/cohort
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# expect STATUS PATTERN COMMAND...: the exit status, and a line of output or error that matches.
expect() {
    local status=$1 pattern=$2
    shift 2
    "$@" >"$scratch/out" 2>&1
    local got=$?
    if [ $got -ne "$status" ] || ! grep -qE -- "$pattern" "$scratch/out"; then
        echo "FAILED: $* gives $got (expected $status with '$pattern') and prints:"
        cat "$scratch/out"
        failed=1
    fi
}

expect 0 '^cohort [0-9]+\.[0-9]+\.[0-9]+$' "$cohort" info
expect 0 '^  compiler ' "$cohort" info
expect 0 '^  oneDNN ' "$cohort" info
expect 0 'device:CPU:0  cpu, ' "$cohort" info
expect 0 '^  cpus +1 +default ' "$cohort" info
expect 0 '^  cpus +2 +environment ' env COHORT_CPUS=2 "$cohort" info
expect 0 'device:GPU:1 .*host-backed' env COHORT_DEVICES=GPU:2 "$cohort" info
expect 0 '"cpus": \{"value": "2", "from": "environment"' env COHORT_CPUS=2 "$cohort" info --json
expect 1 "cpus='many'.*COHORT_CPUS" env COHORT_CPUS=many "$cohort" info
expect 0 '^  matmul ' "$cohort" ops
expect 0 '^  inputs +a, b$' "$cohort" ops matmul
expect 0 '^  dtypes +floats$' "$cohort" ops softmax
expect 0 '^  shapes +\[\.\.\.,m,k\], ' "$cohort" ops matmul
expect 0 '^  example +add_n\(\[1, 2\], \[3, 4\], \[5, 6\]\) = \[9, 12\]$' "$cohort" ops add_n
expect 0 '^  example +ceil\(\[1\.2, -1\.2, 2\.0\]\) = \[2\.0, -1\.0, 2\.0\]$' "$cohort" ops ceil # a whole number stays
expect 0 'The largest integer that is not above x\.' "$cohort" ops floor
expect 1 "no operator 'matmull'" "$cohort" ops matmull
expect 0 '^. `zeros_like` ' "$cohort" ops --markdown # 1 if an operator has no example
if ! "$cohort" ops --markdown | diff "$source/docs/operators.md" - >"$scratch/out"; then
    echo "FAILED: docs/operators.md is not what the table says; write it with: cohort ops --markdown >docs/operators.md"
    head "$scratch/out"
    failed=1
fi
expect 0 '^usage: ' "$cohort" help
expect 0 '^usage: ' "$cohort" --help
expect 0 '^cohort [0-9]+\.[0-9]+\.[0-9]+$' "$cohort" --version
expect 1 'cannot open .*/nowhere' "$cohort" records list "$scratch/nowhere"
if grep -q 'before damage' "$scratch/out"; then
    echo "FAILED: a file that is not there is listed"
    failed=1
fi
expect 2 "no command 'inform'" "$cohort" inform
expect 2 '^usage: ' "$cohort"
expect 2 "argument '--yaml' is unknown" "$cohort" info --yaml

golden=$source/tests/golden/records
expect 0 '^float32 +\[2,3\] +24 +net/w/' "$cohort" checkpoint show "$golden/ckpt_object"
expect 0 '^tensor bundle: 11 tensors' "$cohort" checkpoint show "$golden/ckpt_object.index"
expect 0 'other$' "$cohort" checkpoint show "$golden/ckpt_sliced"
expect 0 'saved in 2 slices' "$cohort" checkpoint show "$golden/ckpt_sliced"
expect 0 '^metadata +format: pt$' "$cohort" checkpoint show "$golden/ckpt_st_metadata.safetensors"
expect 0 '^npz: 4 tensors' "$cohort" checkpoint show -- "$golden/bundle.npz"
expect 1 'no tensor bundle of that prefix' "$cohort" checkpoint show "$scratch/nowhere"
expect 1 'checksum of a block is wrong' "$cohort" checkpoint show "$golden/ckpt_d_index_block_crc"
expect 0 "left out: '_CHECKPOINTABLE_OBJECT_GRAPH', of string" "$cohort" checkpoint convert "$golden/ckpt_object" "$scratch/a.safetensors"
expect 1 '^net/names/.*: only in ' "$cohort" checkpoint diff "$golden/ckpt_object" "$scratch/a.safetensors"
"$cohort" checkpoint convert "$scratch/a.safetensors" "$scratch/a.npz"
expect 0 '^npz: 9 tensors' "$cohort" checkpoint show "$scratch/a.npz"
expect 1 'bfloat16 \[3\] and float32 \[3\]' "$cohort" checkpoint diff "$scratch/a.safetensors" "$scratch/a.npz"
expect 0 '^the same 9 tensors$' "$cohort" checkpoint diff "$scratch/a.safetensors" "$scratch/a.safetensors"
header='{"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s\\1\\2\\3" "$header" >"$scratch/x1"
printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s\\1\\7\\4" "$header" >"$scratch/x2"
expect 1 '^x: 2 elements differ, by 5 at most$' "$cohort" checkpoint diff "$scratch/x1" "$scratch/x2"
expect 1 'must end with .safetensors or .npz' "$cohort" checkpoint convert "$scratch/a.npz" "$scratch/a.pt"
expect 2 '2 files are named; it takes 1' "$cohort" checkpoint show a b
expect 2 "no action 'read'" "$cohort" checkpoint read a
expect 2 "argument '--all' is unknown" "$cohort" checkpoint show --all a
expect 0 '^usage: ' "$cohort" checkpoint --help
expect 0 '^ +5 records +3[0-9]+ bytes +0 to 300 .*plain.tfrecord$' "$cohort" records list "$golden/plain.tfrecord"
expect 0 '^2$' "$cohort" records count "$golden/large.tfrecord"
expect 0 '^1: $' "$cohort" records print "$golden/plain.tfrecord"
expect 0 '^2: 0001fffe$' "$cohort" records print --hex "$golden/plain.tfrecord"
expect 0 '^ +name: .*item-0' "$cohort" records print --example "$golden/examples.tfrecord"
expect 0 'one.tfrecord: good$' "$cohort" records verify "$golden/one.tfrecord" "$golden/empty.tfrecord"
expect 0 '[[]#+[.]*[]] 100 %' "$cohort" records verify --progress "$golden/large.tfrecord"
expect 1 'missing: cannot be read$' "$cohort" records verify "$scratch/missing"
expect 1 'records: is a directory$' "$cohort" records verify "$golden"
expect 1 'bad_data.tfrecord: damaged$' "$cohort" records verify "$golden/bad_data.tfrecord" "$golden/one.tfrecord"
expect 1 'record 1 at offset 28: ' "$cohort" records list "$golden/bad_data.tfrecord"
expect 1 'No such file' "$cohort" records count "$golden/none"
expect 0 '^done$' bash -c 'printf "first\n\nthird" | "$1" records write "$2" && echo done' bash "$cohort" "$scratch/made"
expect 0 '^3$' "$cohort" records count "$scratch/made"
expect 0 '^2: third$' "$cohort" records print "$scratch/made"
expect 1 'cannot write to' bash -c '"$1" records write "$2" </dev/null' bash "$cohort" "$scratch/no/made"
expect 2 '^usage: cohort records' "$cohort" records
expect 2 '^usage: cohort records' "$cohort" records list
expect 2 'records list: no file is named' "$cohort" records list
expect 2 'records write: one file is written' "$cohort" records write "$scratch/a" "$scratch/b"
expect 2 "there is no action 'frob'" "$cohort" records frob "$scratch/made"
expect 0 '^usage: cohort records' "$cohort" records --help
expect 0 '^usage: cohort records' "$cohort" records list -h
expect 0 '^ +3  .*/made$' "$cohort" records count "$scratch/made" "$golden/large.tfrecord"
{ cat "$scratch/made"; printf '123456789'; } >"$scratch/cut"
expect 0 '^3$' "$cohort" records count "$scratch/cut" # readers take that for the end
expect 1 'record 3 at offset 58: the file ends after 9 of the 12' "$cohort" records verify "$scratch/cut"
expect 2 "argument '--all' is unknown; see cohort records --help" "$cohort" records list --all x
expect 2 "argument '-' is unknown" "$cohort" records list -
expect 2 "list: argument '--hex' is for print alone" "$cohort" records list --hex "$scratch/made"
expect 2 "count: argument '--example' is for print alone" "$cohort" records count --example "$scratch/made"
expect 2 "write: argument '--progress' is for actions that read" "$cohort" records write --progress "$scratch/no"
cp "$scratch/made" "$scratch/--hex"
cp "$scratch/made" "$scratch/--"
expect 0 '^1: $' bash -c 'cd "$1" && "$2" records print -- --hex' bash "$scratch" "$cohort"
expect 0 '^ +3  --$' bash -c 'cd "$1" && "$2" records count made --plain -- -- --hex' bash "$scratch" "$cohort"
expect 2 'no file is named' "$cohort" records count --
if "$cohort" info | grep -qE '^  zlib +[0-9]'; then
    expect 0 '^6$' "$cohort" records count "$golden/examples.tfrecord.gz"
    expect 0 'good$' "$cohort" records verify "$golden/examples.tfrecord.gz"
    expect 0 '[0-9]+ records +[0-9]+ MB/s' "$cohort" records verify --progress "$golden/examples.tfrecord.gz"
    expect 1 'not a ZLIB stream' "$cohort" records count --zlib "$golden/examples.tfrecord.gz"
else
    expect 1 'without zlib' "$cohort" records count "$golden/examples.tfrecord.gz"
fi
expect 1 'writing' bash -c '"$1" info >/dev/full' bash "$cohort"
if command -v python3 >/dev/null; then
    "$cohort" info --json | python3 -m json.tool >/dev/null || { echo "FAILED: info --json is no JSON"; failed=1; }
fi
exit $failed
