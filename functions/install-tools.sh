#!/bin/sh
# install-tools.sh [rust] [python] [js] [c]: installs what building the functions takes and this machine lacks; without
# arguments what `make -C functions` needs (python, js). Safe to run again: what is there already is left alone.
#
#   rust    Debian's Rust compiler, cargo and library sources (145 MB), to rebuild hello and image
#   python  a virtual environment functions/.venv with componentize-py (needs python3)
#   js      functions/json-transform/node_modules with componentize-js (needs node and npm)
#   c       ziglang, a C compiler, in functions/.venv (needs python3), for functions made by `fdn new --lang c`
set -eu

functions=$(dirname "$(realpath "$0")")

say() { echo "functions: $*"; }

# Installs Debian packages, as root or through sudo.
debian() {
    if ! command -v apt-get >/dev/null; then
        echo "this needs $*, and there is no apt-get here: install them the way this system does" >&2
        exit 1
    fi
    say "installing $*"
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    quietly=/dev/null
    [ -z "${VERBOSE:-}" ] || quietly=/dev/stdout
    $as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$quietly" || {
        $as_root apt-get update >"$quietly"
        $as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$quietly"
    }
}

rust() {
    if [ -x /usr/bin/cargo ] && [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
        return
    fi
    debian rustc-web cargo-web rust-web-src libstd-rust-web-dev
}

# venv REQUIREMENTS: the virtual environment with what the file pins.
venv() {
    stamp=$functions/.venv/$(basename "$1").installed
    if cmp -s "$1" "$stamp"; then
        return
    fi
    command -v python3 >/dev/null || debian python3 python3-venv
    if ! [ -x "$functions/.venv/bin/pip" ]; then
        # Debian's python3 comes without the module that a virtual environment needs.
        python3 -c 'import ensurepip' 2>/dev/null || debian python3-venv
        python3 -m venv "$functions/.venv"
    fi
    say "installing $(tr '\n' ' ' <"$1")in functions/.venv"
    "$functions/../scripts/retry.sh" "$functions/.venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$1"
    cp "$1" "$stamp"
}

js() {
    stamp=$functions/json-transform/node_modules/.fdn-installed
    if cmp -s "$functions/json-transform/package-lock.json" "$stamp"; then
        return
    fi
    command -v npm >/dev/null || debian nodejs npm
    if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
        echo "json-transform is built with Node.js 20 or later, and this is $(node --version): install a newer one" >&2
        exit 1
    fi
    say "installing the packages of json-transform"
    (cd "$functions/json-transform" && "$functions/../scripts/retry.sh" npm ci --silent)
    cp "$functions/json-transform/package-lock.json" "$stamp"
}

[ $# -gt 0 ] || set -- python js
for tool in "$@"; do
    case $tool in
    rust) rust ;;
    python) venv "$functions/tools/requirements.txt" ;;
    js) js ;;
    c) venv "$functions/tools/requirements-c.txt" ;;
    *)
        echo "install-tools.sh: $tool is not known; give rust, python, js or c" >&2
        exit 2
        ;;
    esac
done
