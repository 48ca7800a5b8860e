#!/bin/sh
# Makes user and folders. Nothing is started or enabled: there are no settings yet (README.Debian).
set -e
[ "$1" = configure ] || exit 0
systemd-sysusers @PACKAGE@.conf
# Once: whoever gives them to others afterwards has reasons.
if [ -z "$2" ]; then
  @FOLDERS@
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # A service that runs goes on with the new program.
  if [ -n "$2" ]; then deb-systemd-invoke try-restart @UNIT@; fi
fi
