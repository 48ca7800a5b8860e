#!/usr/bin/env bash
# Every test. Ends with one line that counts them.
set -uo pipefail
log=$(mktemp)
running=$(mktemp)
checks=$(mktemp)
trap 'rm -f "$log" "$running" "$checks"' EXIT
status=0
step() {
  echo "=== $1"
  shift
  local begin=$SECONDS
  "$@" 2>&1 | tee -a "$log" || status=1
  echo "    took $((SECONDS - begin)) s"
}

# Tests wait more than they compute: the checks run beside them, on what they leave of the processor. cargo gives its lock back when the
# first test program runs; before that the checks would only hold the tests up.
tests_and_checks() {
  {
    until grep -qs " Running " "$running"; do sleep 1; done
    nice -n 19 scripts/check.sh
  } >"$checks" 2>&1 &
  local checking=$! failed=0
  cargo test --release --workspace --no-fail-fast 2>&1 | tee "$running" || failed=1
  # Also when none has run.
  echo " Running " >>"$running"
  echo "=== checks (beside the tests)"
  wait "$checking" || failed=1
  cat "$checks"
  return "$failed"
}

step "console" scripts/console.sh check
step "build" cargo test --release --workspace --no-run
step "functions" make --no-print-directory -C functions all test verify
step "tests" tests_and_checks
step "the API against its document" scripts/schemathesis.sh
step "the console in a browser" npm --prefix web run --silent e2e

# cargo prints one line a test program: "test result: ok. 12 passed; 0 failed; 0 ignored; …"
read -r passed failed ignored < <(
  awk '/^test result:/ {p += $4; f += $6; i += $8} END {print p + 0, f + 0, i + 0}' "$log"
)
if [ "$ignored" != 0 ]; then
  echo "$ignored tests are ignored; a test either runs or goes"
  status=1
fi
# A step that failed without a failed test (a compile error, a lint) counts as one.
if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
echo "$passed passed, $failed failed"
[ "$status" = 0 ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
