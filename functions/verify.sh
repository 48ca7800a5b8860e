#!/bin/sh
# verify.sh [--quick]: checks that the artifacts in the repository come from its sources.
#
# --quick compares digests only, and needs no tools: of the artifacts, and of the sources that they were last built from.
# Without it the artifacts are rebuilt in functions/target/verify and compared octet by octet. That holds for the tools that
# ARTIFACTS names; with others (Debian may have a newer compiler by now) the rebuild must succeed, and is kept there to be
# tried, but cannot be compared: `make -C functions rust` then brings artifacts and list up to date.
set -eu

functions=$(dirname "$(realpath "$0")")
cd "$functions"

./tools/artifacts.sh check
[ "${1:-}" != --quick ] || exit 0

rm -rf target/verify
# Built from nothing: what an earlier build left is not what is verified.
tools/build-rust.sh hello target/verify/hello/hello.wasm target/verify/build
tools/build-rust.sh image-function target/verify/image/image.wasm target/verify/build
tools/build-rust.sh sheet target/verify/sheet/sheet.wasm target/verify/build

if [ "$(tools/artifacts.sh tools)" != "$(sed -n 's/^# built by //p' ARTIFACTS)" ]; then
    echo "functions: rebuilt, but by other tools than the artifacts, so that the octets say nothing; these tools are:"
    tools/artifacts.sh tools
    exit 0
fi
for artifact in hello/hello.wasm image/image.wasm sheet/sheet.wasm; do
    if ! cmp "$artifact" "target/verify/$artifact"; then
        echo "functions: $artifact is not what its sources make; run 'make -C functions rust' and commit the result" >&2
        exit 1
    fi
done
echo "functions: the artifacts are what their sources make, octet by octet"
