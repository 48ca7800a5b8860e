#!/usr/bin/env bash
# Puts the command `fdn` beside cargo's own, so that the lines `make up` prints can be typed as they stand.
set -euo pipefail
bin=$1
mkdir -p "$bin"
ln -sf "$PWD/target/release/fdn" "$bin/fdn"
case ":$PATH:" in
  *":$bin:"*) ;;
  *) echo "note: $bin is not on your PATH; add it, or type $bin/fdn instead of fdn" ;;
esac
