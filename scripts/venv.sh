#!/usr/bin/env bash
# Packages of PyPI for a test, each at its version, in a folder of their own: venv.sh FOLDER REQUIREMENTS PROGRAM [ARGUMENT…], where PROGRAM is one of the
# folder that starts if all is well.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
folder=$1 requirements=$2 program=$3
shift 3
# Installed once for each set of versions, and anew when it does not start: its Python may have gone since.
if ! cmp -s "$requirements" "$folder/requirements.txt" || ! "$folder/bin/$program" "$@" >/dev/null 2>&1; then
  rm -rf "$folder"
  mkdir -p "$(dirname "$folder")"
  python3 -m venv "$folder"
  "$here/retry.sh" "$folder/bin/pip" install --quiet --disable-pip-version-check --require-virtualenv --requirement "$requirements"
  cp "$requirements" "$folder/requirements.txt"
fi
