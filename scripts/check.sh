#!/usr/bin/env bash
# Formatting, sizes and lints; cheapest first. check.sh [PROFILE] [PART]: the profile of the build that it goes with; `form` for what takes seconds alone,
# `lints` for the rest, `docs` for the documentation instead.
set -euo pipefail
profile=${1:-release}
part=${2:-all}
lints() {
  echo "== lints"
  exec cargo clippy --locked --profile "$profile" --workspace --all-targets --quiet -- -D warnings
}
case $part in
  docs) RUSTDOCFLAGS="-D warnings" exec cargo doc --keep-going --profile "$profile" --workspace --no-deps --quiet ;;
  lints) lints ;;
esac
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
echo "== queries"
# A release must read a database to which a later one has added columns (controller/src/store/mod.rs).
if git grep -nE '(SELECT|RETURNING|,) ([a-z]+\.)?\*( |,|"|$)' -- 'controller/src/*.rs'; then
  echo "error: queries name their columns"
  exit 1
fi
if [ "$part" != form ]; then lints; fi
