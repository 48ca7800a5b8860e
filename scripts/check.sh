#!/usr/bin/env bash
# Formatting, lints, documentation and sizes; cheapest first.
set -euo pipefail
echo "== format"
cargo fmt --all --check
echo "== lints"
cargo clippy --release --workspace --all-targets --quiet -- -D warnings
echo "== documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps --quiet
echo "== sizes"
# A file of more than 500 lines has usually more than one thing to say.
large=$(git ls-files '*.rs' | xargs wc -l | awk '$2 != "total" && $1 > 600 {print $1, $2}')
if [ -n "$large" ]; then
  echo "source files over 600 lines; split them by responsibility:"
  echo "$large"
  exit 1
fi
