#!/usr/bin/env bash
# Makes the secrets that the compose file mounts, each once; existing ones stay.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)/secrets
umask 077
mkdir -p "$folder"
for name in network.token network.key broker.password database.password; do
  [ -s "$folder/$name" ] || head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$folder/$name"
done
echo "secrets are in $folder"
