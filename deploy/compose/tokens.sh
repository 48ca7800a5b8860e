#!/bin/sh
# Makes the clusters of deploy/compose.yml and a join token for each of its machines, each once. Its user is `admin` with the first password.
set -eu
# A network of one host: nobody else reads it.
until fdn login http://10.86.0.10:8600 --user admin --password-file /controller/admin.password; do
  sleep 1
done
token() { # FILE COMMAND...
  file=/var/lib/fdn/$1
  shift
  [ -s "$file" ] || { fdn "$@" > "$file.new" && mv "$file.new" "$file"; }
}
for place in eu-west/53.35,-6.26 us-east/39.04,-77.49 ap-south/19.08,72.88; do
  cluster=${place%%/*}
  fdn cluster describe "$cluster" > /dev/null 2>&1 \
    || fdn cluster create "$cluster" --region "$cluster" --location "${place#*/}"
  token "$cluster-1" node token --cluster "$cluster" --ttl 168h
done
token dns dns token --cluster eu-west --ttl 168h
