#!/bin/sh
# An upgrade leaves the service running until the new program is there.
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  deb-systemd-invoke stop @UNIT@
fi
