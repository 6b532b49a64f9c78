# The superuser's password comes as it does for the official image: POSTGRES_PASSWORD.
set -eu
data=/var/lib/postgresql/test
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
if [ ! -s "$data/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb -D "$data" -U postgres -A scram-sha-256 --pwfile /tmp/password -E UTF8 --no-locale >/dev/null
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
    rm /tmp/password
fi
# A killed server leaves the file of its lock.
rm -f "$data/postmaster.pid"
exec postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp
