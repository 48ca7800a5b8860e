#!/usr/bin/env bash
# Runs the benchmarks, with the peers they are measured against: nginx (Debian's), wasmtime's own server and workerd.
# The peers are brought in once into target/peers; without them the rows of fdn are printed alone (PEERS=no leaves them out).
#
# AGAINST=REVISION builds fdn of that revision too and runs both in turns instead, BENCHES="gateway cold dns" (or some of them) in ROUNDS (5) rounds;
# JSON=FILE writes the table as JSON as well.
set -euo pipefail
scripts/install.sh run bench
if [ -n "${AGAINST:-}" ]; then
  revision=$(git rev-parse --verify --short=12 "$AGAINST^{commit}") || {
    echo "AGAINST=$AGAINST names no commit of this repository" >&2
    exit 2
  }
  # Of this compiler: else compilers would be compared, and not revisions.
  other=target/against/$revision-$(rustc -vV | sha256sum | cut -c 1-8)
  if [ ! -x "$other/fdn" ]; then
    echo "building fdn of $revision (once)"
    rm -rf "$other/source"
    mkdir -p "$other/source"
    git archive "$revision" | tar -x -C "$other/source"
    # One build folder for both: dependencies that are the same are compiled once. What is called target/release/fdn is this tree's again afterwards.
    cargo build --release --locked --quiet --target-dir target --manifest-path "$other/source/Cargo.toml" -p fdn-cli --bin fdn
    cp target/release/fdn "$other/fdn"
    rm -rf "$other/source"
  fi
  cargo build --release --locked --quiet -p fdn-cli --bin fdn -p fdn-bench --bin fdn-bench
  read -ra benches <<<"${BENCHES:-}"
  exec target/release/fdn-bench --against "$other" --rounds "${ROUNDS:-5}" ${JSON:+--json "$JSON"} "${benches[@]}"
fi
peers=target/peers
mkdir -p "$peers"
args=()
if [ "${PEERS:-yes}" = yes ]; then
  if [ ! -x "$peers/bin/wasmtime" ]; then
    echo "building wasmtime serve (once, some minutes)"
    CARGO_TARGET_DIR="$peers/target" cargo install wasmtime-cli --version 48.0.8 --locked --quiet --root "$peers" \
      --no-default-features --features run,serve,wasi-http,component-model-async,logging,cranelift,component-model,pooling-allocator,parallel-compilation
  fi
  args+=(--wasmtime "$peers/bin/wasmtime")
  if [ ! -e "$peers/node_modules/workerd" ]; then
    npm install --silent --no-save --no-audit --no-fund --prefix "$peers" workerd
  fi
  workerd=$(find "$peers/node_modules" -type f -path '*workerd-linux*/bin/workerd' | head -n 1)
  [ -z "$workerd" ] || args+=(--workerd "$workerd")
fi
cargo build --release --quiet -p fdn-bench
if [ $# -eq 0 ]; then
  cargo bench --quiet -p fdn-cluster --bench cluster
  cargo bench --quiet -p fdn-scheduling --bench compete
  # Spread over apps, and all of one; then what must still work. A turn is a minute without changes and one with them.
  # DNS_BINDINGS="--apps 1 --bindings 5000000 --turns 3" asks for that alone.
  bindings=("" "--apps 1" "--apps 1 --bindings 5000000 --turns 1")
  [ -z "${DNS_BINDINGS:-}" ] || bindings=("$DNS_BINDINGS")
  for of in "${bindings[@]}"; do
    read -ra options <<<"$of"
    cargo bench --quiet -p fdn-dns --bench bindings -- "${options[@]}"
  done
  cargo build --release --quiet -p fdn-dns
  scripts/bench-dns.sh
fi
exec target/release/fdn-bench "${args[@]}" "$@"
