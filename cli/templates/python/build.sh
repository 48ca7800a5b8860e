#!/bin/sh
# Builds the function: makes {{name}}.wasm. The tools go into .venv, once; COMPONENTIZE_PY names others.
set -eu
cd "$(dirname "$0")"

if [ -z "${COMPONENTIZE_PY:-}" ]; then
    COMPONENTIZE_PY=.venv/bin/componentize-py
    if ! cmp -s requirements.txt .venv/installed.txt; then
        python3 -m venv .venv
        .venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
        cp requirements.txt .venv/installed.txt
    fi
fi
"$COMPONENTIZE_PY" --quiet --wit-path wit --world function componentize app --output "{{name}}.wasm"
echo "built {{name}}.wasm; deploy it: fdn deploy {{name}} {{name}}.wasm"
