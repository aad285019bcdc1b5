# SPDX-License-Identifier: Apache-2.0
# scripts/run-example passes only for the expected output with exit status 0.
set -eu
run=$PWD/scripts/run-example
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '#!/bin/sh\necho one\necho two\nexit ${1:-0}\n' >program
printf '#!/bin/sh\necho one\necho two\nexit 3\n' >failing
chmod +x program failing
printf 'one\ntwo\n' >right.txt
printf 'one\nthree\n' >wrong.txt

"$run" ./program right.txt >/dev/null
! "$run" ./program wrong.txt >/dev/null || { echo "wrong output was accepted"; exit 1; }
! "$run" ./failing right.txt >/dev/null || { echo "exit status 3 was accepted"; exit 1; }
! "$run" ./program absent.txt >/dev/null || { echo "a missing expectation was accepted"; exit 1; }

printf '#> rules S-ONE-1 S-TWO-2\none\ntwo\n' >ruled.txt
COHORT_RULES_LOG=log "$run" ./program ruled.txt >/dev/null
! COHORT_RULES_LOG=log "$run" ./failing ruled.txt >/dev/null || { echo "exit status 3 was accepted"; exit 1; }
printf 'S-ONE-1\texample/ruled\tpass\nS-TWO-2\texample/ruled\tpass\n' >expected_log
printf 'S-ONE-1\texample/ruled\tfail\nS-TWO-2\texample/ruled\tfail\n' >>expected_log
diff expected_log log
