#!/usr/bin/env bash
# Every test. Ends with one line that counts them.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
step() {
  echo "=== $1"
  shift
  local begin=$SECONDS
  "$@" 2>&1 | tee -a "$log" || status=1
  echo "    took $((SECONDS - begin)) s"
}

step "build" cargo build --release --workspace --all-targets
step "checks" scripts/check.sh
step "functions" make --no-print-directory -C functions all test verify
step "tests" cargo test --release --workspace --no-fail-fast

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
