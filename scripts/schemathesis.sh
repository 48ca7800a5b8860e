#!/usr/bin/env bash
# Holds the served API against its own OpenAPI document with schemathesis: no answer 5xx, every status and content type documented, every body as
# its schema says. On a network of its own, one region with one node, whose data go with it; with a fixed seed, the same requests each time.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tools=$root/scripts/schemathesis
place=${FDN_TEST_PLACE:-$root/target/schemathesis}
fdn=${FDN:-$root/target/release/fdn}

[ -x "$fdn" ] || cargo build --release -p fdn-cli --bin fdn

venv=$place/venv
"$root/scripts/venv.sh" "$venv" "$tools/requirements.txt" schemathesis --version

work=$(mktemp -d)
pid=
finish() {
  local status=$?
  if [ -n "$pid" ]; then
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  fi
  if [ "$status" != 0 ] && [ -s "$work/up.log" ]; then
    echo "--- the last lines of the network"
    tail -n 20 "$work/up.log"
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT

# Free ports: five sockets that are closed again at once.
read -r api dns dns_admin gateway admin < <(python3 - <<'PY'
import socket
held = [socket.socket() for _ in range(5)]
for one in held:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))
PY
)
export HOME=$work XDG_CONFIG_HOME=$work/config XDG_DATA_HOME=$work/share
unset FDN_CONTROLLER FDN_CONTEXT FDN_TOKEN_FILE
export FDN_URL=http://127.0.0.1:$api FDN_DATA=$work/data
FDN_TESTER_PASSWORD=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export FDN_TESTER_PASSWORD

"$fdn" up --color never --data-dir "$FDN_DATA" --listen "127.0.0.1:$api" --dns "127.0.0.1:$dns" --dns-admin "127.0.0.1:$dns_admin" \
  --gateway-port "$gateway" --admin-port "$admin" --region eu-west=53.35,-6.26 --nodes 1 --no-docker >"$work/up.log" 2>&1 &
pid=$!
for _ in $(seq 480); do
  kill -0 "$pid" 2>/dev/null || { echo "the network ended"; exit 1; }
  # Its last words; by then the context of the command line is written.
  grep -q '^ready in ' "$work/up.log" && break
  sleep 0.25
done
grep -q '^ready in ' "$work/up.log" || { echo "the network is not ready"; exit 1; }

"$tools/fill.sh" "$fdn" "$root" "$work/schemathesis.toml" >"$work/fill.log" 2>&1 || { cat "$work/fill.log"; exit 1; }

# schemathesis takes the settings from the file and the hooks from the module of this name.
cd "$work"
export SCHEMATHESIS_HOOKS=hooks PYTHONPATH=$tools PYTHONDONTWRITEBYTECODE=1
timeout --kill-after=10 "${SCHEMATHESIS_LIMIT:-600}" \
  "$venv/bin/schemathesis" --config-file "$work/schemathesis.toml" run "$FDN_URL/api/openapi.json" --no-color "$@"
kill -0 "$pid" 2>/dev/null || { echo "the network did not live through it"; exit 1; }
