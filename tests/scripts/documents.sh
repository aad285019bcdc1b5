#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The documents say what is so: every piece of C in them is part of a program that the tests run, every output shown is what the
# program prints, and every file they name is there.
set -u
cd "${COHORT_SOURCE_DIR:-$(dirname "$0")/../..}"
failed=0

# Blocks of C: lines are compared without their indentation, as one run of lines in one file.
for document in README.md docs/*.md; do
    awk -v document="$document" '
        function stripped(line) { sub(/^[ \t]+/, "", line); sub(/[ \t]+$/, "", line); return line }
        FILENAME != document { text[FILENAME] = text[FILENAME] "\n" stripped($0); next }
        /^```c$/ { block = ""; inside = 1; first = FNR + 1; next }
        /^```/ && inside {
            inside = 0; found = 0; ++blocks
            for (name in text) if (index(text[name] "\n", block "\n") > 0) { found = 1; break }
            if (!found) { print "FAILED: " document ":" first ": this code is in no program:" block; bad = 1 }
            next
        }
        inside { block = block "\n" stripped($0) }
        END { exit bad }' examples/*.c examples/demo/*.c examples/outside/*.c tests/unit/guide.c \
        tests/backend/test_backend.c "$document" || failed=1

    # Blocks of output: ```text NAME is what examples/expected/NAME.txt has.
    for name in $(sed -nE 's/^```text ([a-z0-9_]+)$/\1/p' "$document"); do
        shown=$(awk -v start="\`\`\`text $name" '$0 == start { on = 1; next } /^```/ { on = 0 } on' "$document")
        if [ "$shown" != "$(grep -v '^#> ' "examples/expected/$name.txt")" ]; then
            echo "FAILED: $document shows another output of $name than examples/expected/$name.txt"
            failed=1
        fi
    done

    # Files in backquotes with a folder before them.
    for path in $(grep -oE '`(src|include|examples|tests|docs|scripts|bench|tools|cmake)/[A-Za-z0-9_./-]+`' "$document" | tr -d '`'); do
        [ -e "$path" ] || { echo "FAILED: $document names $path, which is not there"; failed=1; }
    done
done
for page in docs/decisions/*.md docs/spec/README.md; do
    for path in $(grep -oE '`(src|include|examples|tests|docs|scripts|bench|tools|cmake)/[A-Za-z0-9_./-]+`' "$page" | tr -d '`'); do
        [ -e "$path" ] || { echo "FAILED: $page names $path, which is not there"; failed=1; }
    done
done

# docs/renamed.tsv: three columns; a new name is there, an old one is not, unless something else has taken it; and the command of
# CHANGELOG.md changes a program by it.
awk -F'\t' '/^#/ { next } NF != 3 { print "FAILED: docs/renamed.tsv:" NR ": " NF " columns, not 3"; bad = 1 } END { exit bad }' docs/renamed.tsv || failed=1
# A name of a header, a header, or the variable of a setting.
is_public() {
    local setting=${1#COHORT_}
    grep -qrw -- "$1" include || [ -e "include/$1" ] ||
        { [ "$setting" != "$1" ] && grep -q "{ \"${setting,,}\", " src/base/settings.c; }
}
while IFS=$'\t' read -r old new _; do
    is_public "$new" || { echo "FAILED: docs/renamed.tsv: there is no $new"; failed=1; }
    if [ "$old" != "$new" ] && ! cut -f 2 docs/renamed.tsv | grep -qxF -- "$old" && grep -qrw -- "$old" include; then
        echo "FAILED: docs/renamed.tsv: $old is still in a header"
        failed=1
    fi
done < <(grep -v '^#' docs/renamed.tsv)
command=$(sed -nE 's/.*`(sed -E .*) -i FILE\.\.\.`.*/\1/p' CHANGELOG.md)
changed=$(echo '<cohort/recorder.h> co_size(ctx, co_size_tensor(ctx, x)) co_read(ctx, v)' | eval "$command")
if [ "$changed" != '<cohort/flight_recorder.h> co_num_items(ctx, co_size(ctx, x)) co_variable_read(ctx, v)' ]; then
    echo "FAILED: the sed command of CHANGELOG.md gives '$changed'"
    failed=1
fi
exit $failed
