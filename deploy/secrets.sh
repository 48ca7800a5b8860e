#!/usr/bin/env bash
# Makes the secrets that the compose file mounts, each once; existing ones stay.
#
# Nobody but the owner enters the folder. The files in it can be read by all, since Compose mounts them as they are, and no process in the
# containers runs as their owner.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)/secrets
mkdir -p "$folder"
chmod 0700 "$folder"
for name in network.token network.key broker.password database.password; do
  [ -s "$folder/$name" ] || head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$folder/$name"
done
# RabbitMQ takes the password of its first user from a file of settings only.
printf 'default_user = fdn\ndefault_pass = %s\n' "$(cat "$folder/broker.password")" > "$folder/broker.conf"
chmod 0644 "$folder"/*
echo "secrets are in $folder"
