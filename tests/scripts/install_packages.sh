#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/install-packages installs only where it may and says what it does. Everything that it could install with is
# replaced by programs that note their arguments, in a PATH where nothing else is.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bin=$scratch/bin
mkdir "$bin"
failed=0
fail() { echo "FAILED: $*"; failed=1; }

bash=$(command -v bash)
for tool in cat env grep sed tr; do ln -s "$(command -v "$tool")" "$bin/$tool"; done
fake() { printf '#!%s\n%s\n' "$bash" "$2" >"$bin/$1" && chmod +x "$bin/$1"; }
fake dpkg-query "cat '$scratch/installed'"
fake apt-cache 'exit 0'
fake apt-get "echo \"apt-get \$*\" >>'$scratch/did'; exit \$(cat '$scratch/apt-status')"
fake sudo "[ \"\$1\" = -n ] || { echo sudo >>'$scratch/did'; \"\$@\"; }"
fake id "cat '$scratch/uid'"

have() { printf 'installed %s, \n' "$@" >"$scratch/installed"; }
everything=(gcc libc6-dev make cmake ninja-build pkg-config libdnnl-dev libopenmpi-dev openmpi-bin libjansson-dev zlib1g-dev)
required=(gcc libc6-dev make cmake)
echo 0 >"$scratch/apt-status"

# expect STATUS UID [VARIABLE=...]: leaves what was printed in $output and what was called in $did.
expect() {
    local status=$1
    echo "$2" >"$scratch/uid"
    shift 2
    : >"$scratch/did"
    output=$(env -i PATH="$bin" "$@" "$bash" "$source/scripts/install-packages" build 2>&1 </dev/null)
    [ $? -eq "$status" ] || fail "status $status was expected with ${*:-nothing set}: $output"
    did=$(cat "$scratch/did")
}
says() { grep -qF -- "$1" <<<"$output" || fail "nowhere said: $1 in: $output"; }
nothing_done() { [ -z "$did" ] || fail "$1 called: $did"; }

have "${everything[@]}"
expect 0 0
nothing_done "a complete system"
[ -z "$output" ] || fail "a complete system is told: $output"

# Root installs, and says what.
have "${required[@]}" ninja-build pkg-config libdnnl-dev libopenmpi-dev openmpi-bin libjansson-dev
expect 0 0
says 'Installing with apt-get (DEPS=no prevents it): zlib1g-dev'
grep -q '^apt-get .*install --no-install-recommends zlib1g-dev' <<<"$did" || fail "zlib1g-dev was not installed: $did"

# DEPS=no never does, as root or not, and stops only where a required package is missing.
for uid in 0 1000; do
    expect 0 $uid DEPS=no
    nothing_done "DEPS=no"
    says 'nothing is installed, because DEPS=no'
    says 'optional:  zlib1g-dev'
    says 'going on without'
done
have gcc libc6-dev make
expect 1 0 DEPS=no
nothing_done "DEPS=no"
says 'required:  cmake'
expect 2 0 DEPS=maybe
nothing_done "DEPS=maybe"

# A program that is there without its package counts.
fake cmake 'exit 0'
expect 0 0 DEPS=no
rm "$bin/cmake"

# Other users: with sudo, and without.
have "${required[@]}"
expect 0 1000
grep -q '^sudo' <<<"$did" || fail "sudo was not used: $did"
says 'and sudo'
fake sudo 'exit 1'
expect 0 1000
nothing_done "a user who may not use sudo"
says 'may not use sudo'
rm "$bin/sudo"
have gcc libc6-dev make
expect 1 1000
nothing_done "a user without sudo"
says 'required:  cmake'

# No network: what is optional is not needed.
echo 100 >"$scratch/apt-status"
have "${required[@]}"
expect 0 0
says 'apt-get failed'
have gcc libc6-dev make
expect 1 0

# Not a Debian: programs are looked for, libraries are left to the build.
rm "$bin/dpkg-query"
expect 1 0
nothing_done "another system"
says 'required:  gcc libc6-dev make cmake'
for tool in gcc make cmake ninja pkg-config mpirun; do fake $tool 'exit 0'; done
expect 0 0
[ -z "$output" ] || fail "a complete other system is told: $output"
exit $failed
