#!/usr/bin/env bash
# Queries per second of fdn-dns and of the servers it is measured against, in turns: the same queries, each with a client subnet of its
# own, the server pinned to core 0 and dnsperf to core 1. Servers that are not installed are left out.
#   ROUNDS=5 SECONDS_EACH=5 NETS=10000 RATE=20000 OLD=path/of/an/earlier/fdn-dns scripts/bench-dns.sh
set -euo pipefail
rounds=${ROUNDS:-5} each=${SECONDS_EACH:-5} nets=${NETS:-10000} rate=${RATE:-20000}
binary=${FDN_DNS:-target/release/fdn-dns}
work=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# Bindings, nets and queries: net i is a /24, bound to the first cluster or the second in turns.
python3 - "$work" "$nets" <<'PY'
import json, struct, sys
work, nets = sys.argv[1], int(sys.argv[2])
block = lambda i: f"{20 + (i >> 16)}.{i >> 8 & 255}.{i & 255}.0/24"
name = lambda i: ["eu", "us"][i % 2]
address = {"eu": "127.0.1.1", "us": "127.0.2.1"}
bindings = [[block(i), name(i)] for i in range(nets)]
cluster = lambda c, lat, lon: {"cluster": c, "region": c, "location": {"lat": lat, "lon": lon},
    "gateways": [f"{address[c]}:9"], "health": []}
network = {"revision": 1, "clusters": [cluster("eu", 53.0, -6.0), cluster("us", 39.0, -77.0)], "locations": [], "measured": []}
app = {"app": "hello", "revision": 2, "state": {"host": "hello.fn.test", "ttl_s": 20, "bindings": bindings}}
state = {"format": 1, "ledger": {"floor": 2, "confirmed_at": 1, "network": network, "apps": [app]}}
open(f"{work}/dns-state.json", "w").write(json.dumps(state))
with open(f"{work}/nets", "w") as out:
    for i in range(nets):
        first, second = name(i), name(i + 1)
        out.write(f"{block(i)} => [ {first}, {second} ]\n")
with open(f"{work}/geo.conf", "w") as out:
    out.write("hello.fn.test:\n")
    for i in range(nets):
        out.write(f"  - net: {block(i)}\n    A: {address[name(i)]}\n")
with open(f"{work}/queries", "wb") as out:
    for n in range(50000):
        i = n * 7919 % nets
        message = b"\0\0\1\0\0\1\0\0\0\0\0\1\5hello\2fn\4test\0\0\1\0\1"
        message += b"\0\0\x29\4\xd0\0\0\0\0\0\x0b\0\x08\0\7\0\1\x18\0" + bytes([20 + (i >> 16), i >> 8 & 255, i & 255])
        out.write(struct.pack(">H", len(message)) + message)
PY

# A server runs as a machine of a network; the controllers of this one are away.
identity() { # folder
  mkdir -p "$1"
  for key in ca node; do openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1/$key.key"; done
  openssl req -x509 -new -key "$1/ca.key" -subj /CN=bench -days 2 -out "$1/ca.pem"
  openssl req -new -key "$1/node.key" -subj /CN=dns-1 | openssl x509 -req -CA "$1/ca.pem" -CAkey "$1/ca.key" -CAcreateserial -days 2 \
    -extfile <(echo subjectAltName=URI:fdn://cluster/bench/dns/dns-1) -out "$1/node.pem" 2>/dev/null
  echo '{"controllers":["127.0.0.1:1"],"controller":"http://127.0.0.1:1","addresses":{"gateway":"127.0.0.1:53","admin":"127.0.0.1:54"}}' >"$1/joined.json"
}
fdn() { # name, binary, port
  mkdir -p "$work/$1"
  cp "$work/dns-state.json" "$work/$1/"
  identity "$work/$1/identity"
  cat >"$work/$1/dns.toml" <<CONF
data_dir = "$work/$1"
listen = ["127.0.0.1:$3"]
admin = "127.0.0.1:$(($3 + 100))"
[log]
filter = "error"
[health]
fall = 1000000
CONF
  taskset -c 0 "$2" --config "$work/$1/dns.toml" >"$work/$1/log" 2>&1 &
}
gdnsd_start() {
  mkdir -p "$work/gdnsd/zones" "$work/gdnsd/geoip" "$work/gdnsd/run" "$work/gdnsd/state"
  cp "$work/nets" "$work/gdnsd/geoip/nets"
  cat >"$work/gdnsd/config" <<CONF
options => { listen => [ 127.0.0.1:$1 ], udp_threads => 1, tcp_threads => 1, run_dir => $work/gdnsd/run, state_dir => $work/gdnsd/state }
plugins => { geoip => {
  maps => { m => { datacenters => [ eu, us ], nets => nets } },
  resources => { hello => { map => m, dcmap => { eu => 127.0.1.1, us => 127.0.2.1 } } } } }
CONF
  printf '@ 3600 SOA ns1 hostmaster 1 3600 600 604800 30\n@ 3600 NS ns1\nns1 3600 A 127.0.0.1\nhello 20 DYNA geoip!hello\n' >"$work/gdnsd/zones/fn.test"
  taskset -c 0 gdnsd -c "$work/gdnsd" start >"$work/gdnsd/log" 2>&1 &
}
zone() { printf '$ORIGIN fn.test.\n@ 3600 SOA ns1 hostmaster 1 3600 600 604800 30\n@ 3600 NS ns1\nns1 3600 A 127.0.0.1\nhello 20 A 127.0.1.1\n'; }
knot_start() {
  mkdir -p "$work/knot"
  zone >"$work/knot/fn.test.zone"
  cat >"$work/knot/knot.conf" <<CONF
server:
  rundir: "$work/knot"
  listen: 127.0.0.1@$1
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
  edns-client-subnet: on
database:
  storage: "$work/knot"
mod-geoip:
  - id: default
    config-file: "$work/geo.conf"
    ttl: 20
    mode: subnet
zone:
  - domain: fn.test
    storage: "$work/knot"
    module: mod-geoip/default
CONF
  taskset -c 0 knotd -c "$work/knot/knot.conf" >"$work/knot/log" 2>&1 &
}
nsd_start() {
  mkdir -p "$work/nsd"
  zone >"$work/nsd/fn.test.zone"
  cat >"$work/nsd/nsd.conf" <<CONF
server:
  ip-address: 127.0.0.1@$1
  server-count: 1
  username: ""
  zonesdir: "$work/nsd"
  pidfile: "$work/nsd/pid"
  xfrdfile: "$work/nsd/xfrd"
  zonelistfile: "$work/nsd/zonelist"
  database: ""
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: fn.test
  zonefile: fn.test.zone
CONF
  taskset -c 0 nsd -d -c "$work/nsd/nsd.conf" >"$work/nsd/log" 2>&1 &
}

names=() ports=()
start() { # name, port, command...
  local name=$1 port=$2
  shift 2
  "$@"
  local pid=$!
  pids+=("$pid")
  for _ in $(seq 200); do
    if [ -n "$(dig +short +tries=1 +time=1 -b 127.0.0.2 @127.0.0.1 -p "$port" +subnet=20.0.1.0/24 hello.fn.test A 2>/dev/null)" ]; then
      names+=("$name") ports+=("$port")
      return
    fi
    sleep 0.1
  done
  echo "($name left out: it does not answer)"
  tail -n 3 "$work/$name/log" || true
}
port=${PORT:-$((20000 + RANDOM % 8000))}
start fdn-dns "$port" fdn fdn-dns "$binary" "$port"
[ -z "${OLD:-}" ] || start earlier $((port + 1)) fdn earlier "$OLD" $((port + 1))
! command -v gdnsd >/dev/null || start gdnsd $((port + 2)) gdnsd_start $((port + 2))
! command -v knotd >/dev/null || start knot $((port + 3)) knot_start $((port + 3))
! command -v nsd >/dev/null || start nsd $((port + 4)) nsd_start $((port + 4))

ask() { # port, more...
  local at=$1
  shift
  taskset -c 1 dnsperf -B -s 127.0.0.1 -p "$at" -d "$work/queries" -c 8 -q 200 -l "$each" "$@" 2>/dev/null
}
family() { # a process with its children and theirs
  local child
  echo "$1"
  for child in $(pgrep -P "$1" || true); do family "$child"; done
}
# Nanoseconds of processor time that a server has had, with its processes and threads.
spent() {
  local pid total=0 ns
  for pid in $(family "$1"); do
    for ns in $(cut -d' ' -f1 "/proc/$pid"/task/*/schedstat 2>/dev/null); do total=$((total + ns)); done
  done
  echo "$total"
}
value() { sed -n "s/^ *$1: *\([0-9.]*\).*/\1/p"; }
echo "dns: A for one name of $nets bound /24, each query with its own client subnet; server on core 0, dnsperf on core 1;" \
  "$rounds rounds of $each s in turns, medians; $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
# A percentile of a sorted file.
at() { awk -v p="$1" '{ a[NR] = $1 } END { if (NR) print a[int((NR - 1) * p / 100) + 1] }' "$2"; }
for _ in $(seq "$rounds"); do
  for i in "${!names[@]}"; do
    before=$(spent "${pids[$i]}")
    ask "${ports[$i]}" >"$work/out"
    after=$(spent "${pids[$i]}")
    value "Queries per second" <"$work/out" >>"$work/${names[$i]}.rate"
    # On a machine that does other things too, this says more than the rate.
    echo "$((after - before)) $(value "Queries completed" <"$work/out")" | awk '{ print $1 / $2 / 1000 }' >>"$work/${names[$i]}.cost"
    # Every answer with its time, in seconds.
    ask "${ports[$i]}" -Q "$rate" -v | sed -n 's/^> .* \([0-9.]*\)$/\1/p' | sort -g >"$work/out"
    at 50 "$work/out" >>"$work/${names[$i]}.p50"
    at 99 "$work/out" >>"$work/${names[$i]}.p99"
    ask "${ports[$i]}" -m tcp | value "Queries per second" >>"$work/${names[$i]}.tcp"
  done
done
median() { sort -g "$1" | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
printf '%-10s %12s %10s %14s %15s %8s %14s %12s\n' server queries/s "of gdnsd" "us of cpu each" "p50 ms, $rate/s" "p99 ms" "queries/s TCP" "memory MiB"
base=$(median "$work/gdnsd.rate" 2>/dev/null || true)
for i in "${!names[@]}"; do
  name=${names[$i]}
  # Of servers with several processes all of them.
  memory=$(ps -o rss= --pid "$(family "${pids[$i]}" | paste -sd,)" | awk '{ s += $1 } END { printf "%.1f", s / 1024 }')
  awk -v n="$name" -v r="$(median "$work/$name.rate")" -v b="$base" -v k="$memory" -v c="$(median "$work/$name.cost")" \
    -v l="$(median "$work/$name.p50")" -v h="$(median "$work/$name.p99")" -v t="$(median "$work/$name.tcp")" \
    'BEGIN { printf "%-10s %12.0f %10s %14.2f %15.3f %8.3f %14.0f %12s\n", n, r, b ? sprintf("%.2f", r / b) : "-", c, l * 1000, h * 1000, t, k }'
done
