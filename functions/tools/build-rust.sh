#!/bin/sh
# build-rust.sh PACKAGE OUT.wasm [TARGET_DIR]: builds one Rust function as a component, the same octets wherever it is run.
#
# The standard library is built along with it (rustup's WebAssembly targets are not needed) from Debian's sources by Debian's
# compiler of the same version; install-tools.sh gets both. RUSTC_BOOTSTRAP admits the two unstable options that this takes:
# build-std, and trim-paths, which keeps the paths of this machine out of the result.
set -eu

package=$1
out=$(realpath -m "$2")
functions=$(dirname "$(dirname "$(realpath "$0")")")
target_dir=$(realpath -m "${3:-$functions/target/debian}")

if ! [ -x /usr/bin/cargo ] || ! [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
    echo "Debian's Rust is missing: run $functions/install-tools.sh rust" >&2
    exit 1
fi

# The linker, which wraps the linked module as a component, comes with every toolchain of rustup.
cd "$functions"
host=$(rustc -vV | sed -n 's/^host: //p')
linkers=$(rustc --print sysroot)/lib/rustlib/$host/bin
if ! [ -x "$linkers/wasm-component-ld" ]; then
    echo "wasm-component-ld is missing in $linkers: put the toolchain of rustup first in PATH" >&2
    exit 1
fi

# Flags and profile settings of the caller's environment would change the result.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_BUILD_TARGET RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER
for name in $(env | sed -n 's/^\(CARGO_PROFILE_[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done

PATH=$linkers/gcc-ld:$PATH RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_INCREMENTAL=0 \
CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linkers/wasm-component-ld \
    /usr/bin/cargo build --quiet --locked --release --package "$package" --target wasm32-unknown-unknown \
    -Z build-std=std,panic_abort -Z trim-paths --config 'profile.release.trim-paths="all"' --target-dir "$target_dir"

mkdir -p "$(dirname "$out")"
cp "$target_dir/wasm32-unknown-unknown/release/$(echo "$package" | tr - _).wasm" "$out"
