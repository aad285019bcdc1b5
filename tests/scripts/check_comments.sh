#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check-comments: the headers pass, and each rule of the check is broken once in a copy of them.
set -eu
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || exec scripts/skip-test "scripts/check-comments needs python3"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

scripts/check-comments || failed=1

# breaks HEADER SED PART: after the change the check fails and says PART.
breaks() {
    local said
    rm -rf "$work/headers"
    cp -r include/cohort "$work/headers"
    sed -i -E "$2" "$work/headers/$1"
    if cmp -s "include/cohort/$1" "$work/headers/$1"; then
        echo "FAILED: '$2' changes nothing in $1"
        failed=1
    elif said=$(scripts/check-comments "$work/headers"); then
        echo "FAILED: $1 passes after '$2'"
        failed=1
    elif [[ $said != *"$3"* ]]; then
        echo "FAILED: after '$2' in $1 it says '$said', not '$3'"
        failed=1
    fi
}
breaks strategy.h '/^ \* Blocks:   until all processes have arrived\.$/d' "it must have Scope, Context, Blocks, Returns"
breaks strategy.h 's/^ \* Scope:    collective over processes\.$/ * Scope:    this process./' "co_reduce is collective; its Scope says otherwise"
breaks flight_recorder.h 's/^ \* (Scope|Context|Blocks|Returns):/ * -/' "co_flight_save waits for others"
breaks strategy.h 's/^\/\*\* co_run with options;/\/** With options;/; s/are those of co_run\. \*\//are known. *\//' "co_run_with waits for others; say Scope, Context, Blocks, Returns, or name co_run"
breaks extended.h 's/^ \* Scope:    this process\.$/ * Scope:    collective over processes./' "co_update_non_slot is collective and not in the list"
breaks value.h 's/the documents\. None/the documents (DV-SPEC-1). None/' "names a rule"
breaks value.h 's/Rules: DV-SPEC-1\./Rules: DV-SPEC-99./' "DV-SPEC-99 is no rule of the specification"
breaks value.h 's/Rules: DV-SPEC-1\./Rules: DV-SPEC-1 and others./' "is not of the form"
breaks train.h 's/^CO_API co_code co_minimize\(/CO_API co_code co_minimise(/' "co_minimize is in the lists of scripts/check-comments and in no header"
exit $failed
