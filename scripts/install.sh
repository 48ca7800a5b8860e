#!/usr/bin/env bash
# Installs Debian packages that are missing. Arguments: the sets wanted, `run` (to build and try) and `test`.
set -euo pipefail
here=$(dirname "$(realpath "$0")")

declare -A packages=(
  [run]="build-essential bind9-dnsutils"
  [test]="postgresql rabbitmq-server util-linux iproute2 curl docker.io python3-venv chromium knot-dnsutils unbound dnsviz nsd prometheus python3-yaml systemd docker-compose faketime nginx-light openssl"
  [dist]="dpkg-dev binutils ca-certificates python3"
  [bench]="wrk nginx-light dnsperf gdnsd knot knot-module-geoip nsd bind9-dnsutils python3 procps util-linux docker.io"
)

missing=()
for set in "$@"; do
  for package in ${packages[$set]}; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
  done
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "please install what these Debian packages hold, then try again: ${missing[*]}" >&2
  exit 1
fi
run() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
echo "installing: ${missing[*]}"
# Run level 1 keeps the packages' scripts from starting servers: tests start their own.
run env DEBIAN_FRONTEND=noninteractive "$here/retry.sh" apt-get update -qq
run env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive "$here/retry.sh" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
