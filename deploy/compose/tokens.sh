#!/bin/sh
# Makes the cluster of one machine of deploy/compose.yml and a join token for it, each once: in a folder that no other machine sees, so that none can
# join in another's place. Its user is `admin` with the first password.
set -eu
file=/var/lib/fdn/token
# Made before: the first password may have been changed since, and logins that fail make the admin wait.
[ ! -s "$file" ] || exit 0
# A network of one host: nobody else reads it.
until said=$(fdn login http://10.86.0.10:8600 --user admin --password-file /controller/admin.password 2>&1); do
  echo "$said" >&2
  case $said in
    *FDN-2001*)
      # Each further try would make the admin wait longer. It is not started again either.
      echo "the first password has been changed: write the present one there and bring the network up again (docs/operations/backup.md)" >&2
      exit 0
      ;;
  esac
  sleep 1
done
case $CLUSTER in
  eu-west) place=53.35,-6.26 ;;
  us-east) place=39.04,-77.49 ;;
  ap-south) place=19.08,72.88 ;;
esac
# Another of these may make it at the same moment: then this one is started again, and finds it.
fdn cluster describe "$CLUSTER" > /dev/null 2>&1 || fdn cluster create "$CLUSTER" --region "$CLUSTER" --location "$place"
fdn "$ROLE" token --cluster "$CLUSTER" --ttl 168h > "$file.new"
mv "$file.new" "$file"
