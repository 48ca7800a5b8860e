#!/bin/sh
# `remove` keeps settings, identity and state; `purge` deletes them. The user stays, so that nobody else gets its number.
set -e
if [ "$1" = purge ]; then
  rm -rf @PURGED@
  for folder in @SHARED@; do
    if [ -d "$folder" ]; then rmdir --ignore-fail-on-non-empty "$folder"; fi
  done
  rm -f /etc/systemd/system/multi-user.target.wants/@UNIT@
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
