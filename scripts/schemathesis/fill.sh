#!/usr/bin/env bash
# Fills a network with one of each thing, so that answers have something in them. Arguments: the program fdn, the repository, and where the settings of
# schemathesis go, with the ids of what was made.
set -euo pipefail
fdn=$1
root=$2
settings=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$fdn" deploy hello "$root/functions/hello/hello.wasm"
cat >"$work/flow.yaml" <<'YAML'
stages:
  - name: first
    function: hello
  - name: second
    function: hello
    needs: [first]
YAML
"$fdn" workflow deploy flow "$work/flow.yaml"
cat >"$work/prices.toml" <<TOML
name = "first"
currency = "EUR"
from = "$(date -u +%Y-%m-01)"

[prices.invocations]
price = "0.20"
per = 1000000
TOML
"$fdn" price apply "$work/prices.toml"
"$fdn" budget set all --limit 100
"$fdn" key create hello --name shop
key=$("$fdn" key list hello | grep -om1 'key_[0-9a-f]\{32\}')

# A second version, calls to both, and what belongs to the app.
"$fdn" env set hello LEVEL=debug
"$fdn" traffic set hello v1=50 v2=50
echo "a value" | "$fdn" secret set hello KEY
"$fdn" domain add hello shop.example.org
"$fdn" label hello team=shop
"$fdn" schedule set hello nightly "0 3 * * *" --data work
cat >"$work/release.pub" <<'PEM'
-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAxyXfv7H0RrZnkcCrGxHFA2X1IfOeVWntgZV+sVQQ6zI=
-----END PUBLIC KEY-----
PEM
"$fdn" signing-key add default release "$work/release.pub"

# A job that has ended, with its answer, and a run of the workflow.
job=$("$fdn" job submit hello --data work --output json | grep -om1 'job_[0-9a-f]\{32\}')
"$fdn" job status "$job" --wait --timeout 60s
"$fdn" invoke flow --data work >"$work/answer"
"$fdn" node token --cluster eu-west
"$fdn" tenant create home
echo "a long enough password" | "$fdn" user create ann
"$fdn" member set default ann viewer
echo "$FDN_TESTER_PASSWORD" | "$fdn" user create tester --network-role admin
"$fdn" member set default tester owner
run=$(python3 "$root/scripts/schemathesis/run_of.py" flow)

sed -e "s/JOB/$job/" -e "s/RUN/$run/" -e "s/KEY_ID/$key/" "$root/scripts/schemathesis/schemathesis.toml" >"$settings"
