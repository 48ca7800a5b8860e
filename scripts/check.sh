#!/usr/bin/env bash
# Formatting, lints and sizes; cheapest first. check.sh [PROFILE] [docs]: the profile of the build that it goes with, and the documentation
# instead of all this.
set -euo pipefail
profile=${1:-release}
if [ "${2:-}" = docs ]; then
  RUSTDOCFLAGS="-D warnings" exec cargo doc --profile "$profile" --workspace --no-deps --quiet
fi
echo "== format"
cargo fmt --all --check
echo "== sizes"
# A file of more than 500 lines has usually more than one thing to say.
large=$(git ls-files '*.rs' | xargs wc -l | awk '$2 != "total" && $1 > 600 {print $1, $2}')
if [ -n "$large" ]; then
  echo "error: source files over 600 lines; split them by responsibility:"
  echo "$large"
  exit 1
fi
echo "== lints"
cargo clippy --locked --profile "$profile" --workspace --all-targets --quiet -- -D warnings
