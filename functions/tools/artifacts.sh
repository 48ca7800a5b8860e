#!/bin/sh
# artifacts.sh write|check|tools: the list ARTIFACTS of the components in the repository.
#
#   write   lists the digests of the artifacts, of their sources, and the tools
#   check   fails when an artifact or a source is not the listed one
#   tools   prints the versions of the tools that decide the octets of an artifact
set -eu

cd "$(dirname "$(dirname "$(realpath "$0")")")"

tools() {
    linkers=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
    /usr/bin/rustc --version
    "$linkers/wasm-component-ld" --version
    "$linkers/gcc-ld/wasm-ld" --version | sed 's/ (.*//'
}

# What a component is made from: a change of one of these asks for a rebuild.
sources() {
    find Cargo.toml Cargo.lock tools/build-rust.sh exchange/Cargo.toml exchange/src hello/Cargo.toml hello/src image/Cargo.toml image/src \
        sheet/Cargo.toml sheet/src -type f | LC_ALL=C sort
}

case ${1:-} in
write)
    {
        echo "# The components in the repository and what they were built from (functions/README.md). Written by tools/artifacts.sh."
        tools | sed 's/^/# built by /'
        sha256sum hello/hello.wasm image/image.wasm sheet/sheet.wasm
        sources | xargs sha256sum
    } >ARTIFACTS.new
    mv ARTIFACTS.new ARTIFACTS
    ;;
check)
    listed=$(sed -n 's/^[0-9a-f]\{64\}  //p' ARTIFACTS | grep -v '\.wasm$')
    if [ "$listed" != "$(sources)" ] || ! sha256sum --check --quiet ARTIFACTS; then
        echo "functions: sources and artifacts are not those of ARTIFACTS; run 'make -C functions rust' and commit the result" >&2
        exit 1
    fi
    ;;
tools) tools ;;
*)
    echo "artifacts.sh: give write, check or tools" >&2
    exit 2
    ;;
esac
