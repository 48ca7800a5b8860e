#!/usr/bin/env bash
# Runs a command that asks a package registry: three tries with pauses, since registries are away now and then.
set -uo pipefail
for pause in 5 20 ''; do
  "$@" && exit 0
  status=$?
  [ -n "$pause" ] || break
  echo "failed with $status, trying again in $pause s: $*" >&2
  sleep "$pause"
done
exit "$status"
