#!/bin/sh
# Puts what was built into dist, from where it gets into the programs; leaves dist alone if it is that already, so that cargo does not compile
# the controller anew for files that only look new.
set -eu
cd "$(dirname "$0")/.."
diff -r node_modules/.dist dist >/dev/null 2>&1 && exit 0
rm -rf dist
cp -R node_modules/.dist dist
