#!/bin/sh
# Builds the function: makes {{name}}.wasm.
set -eu
cd "$(dirname "$0")"

sysroot=$(rustc --print sysroot)
if [ -d "$sysroot/lib/rustlib/wasm32-wasip2" ]; then
    target=wasm32-wasip2
    cargo build --release --target "$target"
elif [ -d /usr/lib/rustlib/src/rust/library ]; then
    # Without rustup's target: Debian's compiler builds the standard library from Debian's sources (rust-web-src), and rustup's
    # toolchain lends the linker. RUSTC_BOOTSTRAP admits the unstable option for that.
    target=wasm32-unknown-unknown
    linkers=$sysroot/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
    PATH=$linkers/gcc-ld:$PATH RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc \
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linkers/wasm-component-ld \
        /usr/bin/cargo build --release --target "$target" -Z build-std=std,panic_abort
else
    echo "the target wasm32-wasip2 is missing; install it: rustup target add wasm32-wasip2" >&2
    exit 1
fi
cp "${CARGO_TARGET_DIR:-target}/$target/release/function.wasm" "{{name}}.wasm"
echo "built {{name}}.wasm; deploy it: fdn deploy {{name}} {{name}}.wasm"
