# SPDX-License-Identifier: Apache-2.0
# The unit test harness gives each case of tests/harness the verdict that its name begins with, says why, and logs the
# rules of those that ran.
set -eu
program=$COHORT_BUILD_DIR/tests/harness_cases
[ -x "$program" ] || { echo "there is no library yet, so no harness"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export COHORT_RULES_LOG=$folder/rules COHORT_COUNTS_DIR=$folder COHORT_TEST_NAME=counts COHORT_TEST_TIMEOUT=2
status=0

if "$program" --verbose >"$folder/output" 2>&1; then
    echo "the program has failing cases and ended with status 0"
    status=1
fi

# Verdict and name, as declared and as given.
"$program" --list | sed -E 's/^(pass|fail|skip)(_[^\t]*).*/\1 \1\2/' >"$folder/expected"
sed -nE 's/^(pass|FAIL|skip) ([a-z_]+).*/\1 \2/p' "$folder/output" | sed 's/^FAIL/fail/' >"$folder/given"
diff -u "$folder/expected" "$folder/given" || status=1

says() {
    grep -qF -- "$1" "$folder/output" || { echo "nowhere said: $1"; status=1; }
}
says '1 + 1 is 2, expected 3'
says '1.0 is 1, expected 1.2'
says '"a" is "a", expected NULL'
says 'is 0x63, expected 0x64'
says 'CO_TYPE_ERROR is CO_TYPE_ERROR, expected CO_VALUE_ERROR'
says 'nothing was expected'
says '1 == 2 is false'
says 'ended inside the body with status 0'
says 'ended by signal 6'
says 'ended after 2 s'
says '5 is 5, expected 6'
says 'skip skip_says_why: there is no moon'
says 'the moon is missing'
if grep -qF 'not reached' "$folder/output"; then
    echo "CO_REQUIRE went on"
    status=1
fi

count() { grep -c "^$1 " "$folder/expected" || true; }
counts="$(count pass) $(count fail) $(count skip)"
[ "$(cat "$folder/counts")" = "$counts" ] || { echo "counted $(cat "$folder/counts"), expected $counts"; status=1; }

diff -u - "$folder/rules" <<RULES || status=1
H-1	harness_cases/pass_when_all_holds	pass
H-2	harness_cases/pass_when_all_holds	pass
H-1	harness_cases/fail_int	fail
H-3	harness_cases/fail_by_exit_inside_the_body	fail
H-2	harness_cases/pass_with_context	pass
RULES

[ $status -eq 0 ] || { echo "the output:"; cat "$folder/output"; }
exit $status
