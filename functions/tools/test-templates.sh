#!/bin/sh
# test-templates.sh: makes a function of each template of `fdn new` in functions/target/templates and builds it with the tools
# that install-tools.sh got. With FDN, the path of an `fdn`, that makes them; else the templates are copied as it would.
set -eu

functions=$(dirname "$(dirname "$(realpath "$0")")")
templates=$functions/../cli/templates
out=$functions/target/templates
rm -rf "$out"
mkdir -p "$out"
cd "$out"

# new LANG NAME
new() {
    if [ -n "${FDN:-}" ]; then
        "$FDN" new --lang "$1" "$2"
        return
    fi
    cp -R "$templates/$1" "$2"
    cp "$templates/cases.json" "$2/cases.json"
    [ "$1" = rust ] || cp -R "$templates/wit" "$2/wit"
    find "$2" -type f ! -name '*.o' -exec sed -i "s/{{name}}/$2/g" {} +
}

for lang in rust js python c; do
    new "$lang" "my-$lang"
    if grep -rIn '{{name}}' "my-$lang"; then
        echo "a placeholder is left in my-$lang" >&2
        exit 1
    fi
done

(cd my-rust && CARGO_TARGET_DIR="$functions/target/my-rust" ./build.sh)
ln -s "$functions/json-transform/node_modules" my-js/node_modules
(cd my-js && npm run --silent build)
(cd my-python && COMPONENTIZE_PY="$functions/.venv/bin/componentize-py" ./build.sh)
make -C my-c ZIG="$functions/.venv/bin/python -m ziglang" COMPONENT_NEW="$functions/json-transform/node_modules/.bin/jco new"

for lang in rust js python c; do
    # A component begins with the magic of WebAssembly and the component model's version.
    head -c 8 "my-$lang/my-$lang.wasm" | od -An -tx1 | grep -q '00 61 73 6d 0d 00 01 00' || {
        echo "my-$lang.wasm is no component" >&2
        exit 1
    }
done
