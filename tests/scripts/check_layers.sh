# SPDX-License-Identifier: Apache-2.0
# scripts/check-layers accepts a tree in order and names each kind of include out of order.
set -eu
check=$PWD/scripts/check-layers
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p src/base src/value src/ops/engine src/ops/kernels/ref src/ops/math src/collective/mpi examples

echo '#include "base/log.h"' >src/value/value.c
echo '#include "ops/kernels/ref/ref.h"' >src/ops/math/unary_ops.c
printf '#include "ops/engine/op.h"\n#include "ops/kernels/gemm.h"\n' >src/collective/group.c
echo '#include <mpi.h>' >src/collective/mpi/mpi.c
echo '#include <cohort/cohort.h>' >examples/01_first.c
touch src/base/log.h src/value/value.h src/ops/kernels/ref/ref.h src/ops/engine/op.h src/ops/kernels/gemm.h src/ops/math/unary.h
"$check" .

expect() {
    local output
    if output=$("$check" .); then
        echo "accepted: $1"
        exit 1
    fi
    if ! grep -qF -- "$1" <<<"$output"; then
        printf 'expected "%s" in:\n%s\n' "$1" "$output"
        exit 1
    fi
}

echo '#include "value/value.h"' >src/base/log.c
expect 'src/base/log.c:1: src/base must not include "value/value.h"'
rm src/base/log.c
printf '\n#include "ops/kernels/ref/ref.h"\n' >src/collective/group.c
expect 'src/collective/group.c:2: "ops/kernels/ref/ref.h" is private to src/ops'
rm src/collective/group.c
echo '#include "ops/kernels/gemm.h"' >src/ops/engine/apply.c
expect 'src/ops/engine/apply.c:1: src/ops/engine must not include "ops/kernels/gemm.h"'
rm src/ops/engine/apply.c
echo '#include "ops/math/unary.h"' >src/ops/kernels/gemm.c
expect 'src/ops/kernels/gemm.c:1: src/ops/kernels must not include "ops/math/unary.h"'
rm src/ops/kernels/gemm.c
echo '#include "../value/value.h"' >src/base/log.c
expect 'src/base must not include'
rm src/base/log.c
echo '#include <mpi.h>' >src/base/log.c
expect '<mpi.h> belongs to src/collective/mpi'
rm src/base/log.c
echo '#include "value/value.h"' >examples/02_second.c
expect 'examples/02_second.c:1: "value/value.h" is not beside this file'
rm examples/02_second.c
printf 'void f(co_value *t) { t->u.tensor.data = 0; g(t->u.tensor.data); }\n' >src/base/log.c
expect 'src/base/log.c:1: the data of a tensor may be on a device'
rm src/base/log.c
echo 'copy = coi_tensor_to(heap, tensor, device, err);' >src/collective/group.c
expect 'src/collective/group.c:1: observers see no copy that coi_tensor_to makes'
rm src/collective/group.c
touch src/stray.c
expect 'src/stray.c:1: a source file belongs into one of'
rm src/stray.c
"$check" .
