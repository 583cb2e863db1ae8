#!/bin/bash
# The entrypoint of the database image. Of what that of the official MariaDB image does, this does what mariadb-operator uses: it makes a new data directory with
# a root whose password is MARIADB_ROOT_PASSWORD, here and at MARIADB_ROOT_HOST, and it gives options to mariadbd. All else the operator does by SQL.
set -euo pipefail
data=/var/lib/mysql
sql=/tmp/init.sql

# quoted TEXT: as a string of SQL.
quoted() {
	local text=${1//\\/\\\\}
	printf "'%s'" "${text//\'/\\\'}"
}

[ -d "$data/mysql" ] || mariadb-install-db --datadir="$data" --skip-test-db --skip-name-resolve --auth-root-authentication-method=normal
# At every start, so that a first one that was cut off does no harm. mariadbd reads it before it listens.
: "${MARIADB_ROOT_PASSWORD:?is not set}"
password=$(quoted "$MARIADB_ROOT_PASSWORD") root=root@$(quoted "${MARIADB_ROOT_HOST:-%}")
(
	umask 077
	cat >"$sql" <<-EOF
		ALTER USER root@localhost IDENTIFIED BY $password;
		CREATE USER IF NOT EXISTS $root IDENTIFIED BY $password;
		GRANT ALL ON *.* TO $root WITH GRANT OPTION;
	EOF
)
exec mariadbd --datadir="$data" --init-file="$sql" "$@"
