#!/usr/bin/env bash
# Builds the web console into web/dist, from where it gets into the programs; with the argument `check`, types, lints, unit tests and sizes too.
# Packages are fetched when the lock file has changed since they were, and only then.
set -euo pipefail
cd "$(dirname "$0")/../web"

if ! command -v npm >/dev/null; then
  if [ "${1:-}" = check ]; then
    echo "the console's checks need Node.js (20.19 or newer, with npm)" >&2
    exit 1
  fi
  echo "note: Node.js (20.19 or newer, with npm) is not installed; the programs are built without the web console"
  exit 0
fi
if ! cmp -s package-lock.json node_modules/.fetched; then
  ../scripts/retry.sh npm ci --silent
  cp package-lock.json node_modules/.fetched
fi
if [ "${1:-}" = check ]; then
  npm run --silent check
else
  echo "building the console"
  npm run --silent build
fi
