#!/bin/sh
# Installs from the bundle beside it, on a machine that reaches no network. Each command looks at the sums first.
#
#   ./install.sh check                  looks at the sums and does nothing else
#   ./install.sh packages NAME...       installs Debian packages: fdn, fdn-controller, fdn-dns, fdn-edge-agent
#   ./install.sh images [NAME...]       loads images into Docker (or what $ENGINE names, such as podman); all, if none is named
set -eu
cd "$(dirname "$0")"

one() {
  # The file of a folder that has a name, this sign after it, and then a version.
  for file in "$1/$2$3"[0-9]*; do
    [ -f "$file" ] && { echo "$file"; return; }
  done
  echo "there is no $2 in $1/" >&2
  return 1
}

usage() {
  sed -n 's/^#   //p' "$0" >&2
  exit 2
}

[ $# -gt 0 ] || usage
what=$1
shift
case $what in check | packages | images) ;; *) usage ;; esac
sha256sum --quiet --check --strict SHA256SUMS
case $what in
  check) echo "every file is as it was made" ;;
  packages)
    [ $# -gt 0 ] || usage
    files=
    for name in "$@"; do files="$files $(one packages "$name" _)"; done
    # shellcheck disable=SC2086 # names of files without spaces
    dpkg -i $files
    ;;
  images)
    [ $# -gt 0 ] || set -- fdn fdn-controller fdn-dns fdn-edge-agent
    for name in "$@"; do
      file=$(one images "$name" -)
      "${ENGINE:-docker}" load -i "$file"
    done
    ;;
esac
