#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/include-graph counts includes by folder, finds cycles, and notices a document that says something else.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }
cd "$scratch"
mkdir -p scripts docs src/base src/ops/kernels src/ops/engine
cp "$source/scripts/include-graph" scripts/
touch src/base/a.h src/ops/engine/e.h src/ops/kernels/k.h
printf '#include "a.h"\n#include <stdio.h>\n' >src/base/a.c
printf '#include "base/a.h"\n#include "../kernels/k.h"\n#include "config.h"\n' >src/ops/engine/e.c
printf '#include "base/a.h"\n' >src/ops/kernels/k.c

says() { scripts/include-graph | grep -qE "$1" || fail "no line '$1' in: $(scripts/include-graph)"; }
says '^base +2$'
says '^ops/engine +2  base 1, ops/kernels 1$'
says '^ops/kernels +2  base 1$'
says '^no cycles$'
echo '#include "ops/engine/e.h"' >>src/ops/kernels/k.c
says '^cycle: ops/engine <-> ops/kernels$'

scripts/include-graph --check >/dev/null 2>&1 && fail "a missing document is accepted"
{ echo before; scripts/include-graph; echo behind; } >docs/architecture.md
scripts/include-graph --check || fail "the same block is refused"
echo '#include "base/a.h"' >>src/ops/kernels/k.h
scripts/include-graph --check >/dev/null && fail "another graph is accepted"
scripts/include-graph --write
scripts/include-graph --check || fail "the written block is refused"
[ "$(head -n 1 docs/architecture.md) $(tail -n 1 docs/architecture.md)" = 'before behind' ] || fail "--write changed the rest"
echo nothing >docs/architecture.md
scripts/include-graph --write >/dev/null 2>&1 && fail "a document without markers is accepted"
scripts/include-graph --no-such-option >/dev/null 2>&1
[ $? -eq 2 ] || fail "an unknown option is accepted"
exit $failed
