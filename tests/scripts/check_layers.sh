# SPDX-License-Identifier: Apache-2.0
# scripts/check-layers accepts a tree in order and names each kind of include out of order.
set -eu
check=$PWD/scripts/check-layers
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p src/base src/value src/ops/engine src/ops/kernels/{ref,simd,drivers} src/ops/math src/collective/mpi examples

echo '#include "base/log.h"' >src/value/value.c
echo '#include "ops/kernels/ref/ref.h"' >src/ops/math/unary_ops.c
printf '#include "ops/engine/op.h"\n#include "ops/kernels/gemm.h"\n' >src/collective/group.c
printf '#include "ops/kernels/gemm.h"\n#include "ops/kernels/ref/ref.h"\n#include "ops/kernels/simd/vector.h"\n' >src/ops/kernels/drivers/gemm.c
printf '#include "ops/kernels/gemm.h"\nvoid f(coi_call *c) { g(c->in[0]->u.tensor.data, COI_OUT(c, 0, float)); }\n' >src/ops/kernels/simd/simd_gemm.c
echo '#include <mpi.h>' >src/collective/mpi/mpi.c
echo '#include <cohort/cohort.h>' >examples/01_first.c
touch src/base/log.h src/value/value.h src/ops/kernels/ref/ref.h src/ops/engine/op.h src/ops/kernels/gemm.h src/ops/math/unary.h src/ops/kernels/simd/vector.h
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
echo '#include "ops/math/unary.h"' >src/ops/kernels/drivers/matmul.c
expect 'src/ops/kernels/drivers/matmul.c:1: src/ops/kernels must not include "ops/math/unary.h"'
rm src/ops/kernels/drivers/matmul.c
echo '#include "ops/kernels/simd/vector.h"' >src/ops/kernels/gemm.c
expect 'src/ops/kernels/gemm.c:1: src/ops/kernels must not include "ops/kernels/simd/vector.h"'
rm src/ops/kernels/gemm.c
echo '#include "ops/kernels/ref/ref.h"' >src/ops/kernels/simd/simd_unary.c
expect 'src/ops/kernels/simd/simd_unary.c:1: src/ops/kernels/simd must not include "ops/kernels/ref/ref.h"'
rm src/ops/kernels/simd/simd_unary.c
echo '#include "ops/kernels/simd/vector.h"' >src/ops/math/matmul_ops.c
expect 'src/ops/math/matmul_ops.c:1: "ops/kernels/simd/vector.h" is private to src/ops/kernels'
rm src/ops/math/matmul_ops.c
mkdir src/ops/kernels/other
echo '#include "ops/kernels/gemm.h"' >src/ops/kernels/other/other.c
expect 'src/ops/kernels/other/other.c:1: a folder of src/ops/kernels is one of {drivers,generic,onednn,ref,simd}'
rm -r src/ops/kernels/other
for entry in 'COI_USES_OP(relu)' 'return call->op == &coi_op_relu;' '#define ENTRY(name) &coi_op_##name'; do
    echo "$entry" >src/ops/kernels/drivers/epilogue.c
    expect 'src/ops/kernels/drivers/epilogue.c:1: kernels know no entry of an operator'
    rm src/ops/kernels/drivers/epilogue.c
done
for access in 'return x->u.tensor.data;' 'return COI_IN(call, 0, float)[0];' 'COI_OUT(call, 0, float)[0] = 0;'; do
    echo "$access" >src/ops/math/binary_ops.c
    expect 'src/ops/math/binary_ops.c:1: the data of a tensor may be on a device'
    rm src/ops/math/binary_ops.c
done
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
for state in 'ctx->random_counter++' 'ctx->seed;'; do
    echo "$state" >src/ops/kernels/drivers/random.c
    expect 'src/ops/kernels/drivers/random.c:1: kernels neither read nor change the state of a context'
    rm src/ops/kernels/drivers/random.c
done
for operator in 'static const coi_op relu = {' 'static const coi_op relu;' 'const coi_op relu = { RELU };' 'static const coi_op coi_op_relu = {'; do
    echo "$operator" >src/ops/math/binary_ops.c
    expect 'relu is an operator outside the table'
    rm src/ops/math/binary_ops.c
done
printf 'const coi_op coi_op_relu = {\nstatic const coi_op *const all[] = {\n' >src/ops/math/binary_ops.c
"$check" .
rm src/ops/math/binary_ops.c
touch src/stray.c
expect 'src/stray.c:1: a source file belongs into one of'
rm src/stray.c
"$check" .
