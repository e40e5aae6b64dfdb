# shellcheck shell=bash
# Accounting: MariaDB and slurmdbd on the login machine, before slurmctld, which asks them for its cluster.

accounting() { [[ -n ${P[accounting]-} ]]; }

# check_accounting ROOT: what is needed in the cluster's own root
check_accounting() {
    local pair missing=''
    for pair in slurmdbd:slurmdbd mariadbd:mariadb-server-core mariadb-install-db:mariadb-server-core mariadb:mariadb-client-core; do
        compgen -G "$1/usr/*bin/${pair%%:*}" >/dev/null || missing+=" $pair"
    done
    [[ -z $missing ]] || fail "--accounting: not installed${1:+ in $1}:$(programs_of "$missing")"$'\n'"  apt-get install --no-install-recommends $(packages_of "$missing")"
}

accounting_settings() {
    cat <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=login
AccountingStoragePass=$STATE/munge/socket
AccountingStoreFlags=job_comment
CONF
}

# slurmdbd reads it only from its own user, and only that user's.
write_slurmdbd_conf() {
    (umask 077; cat >"$STATE/slurm/slurmdbd.conf") <<CONF
AuthType=auth/munge
AuthInfo=socket=$STATE/munge/socket
DbdHost=login
SlurmUser=$(id -un)
LogFile=$STATE/log/slurmdbd.log
PidFile=$STATE/db/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageLoc=slurm_acct_db
CONF
}

# The database has no network and no passwords: only the login machine sees its socket. libmariadb takes the socket from the
# environment; slurmdbd.conf has no word for it.
start_database() {
    local home=$STATE/db
    if [[ ! -d $home/data ]]; then
        mkdir -p "$home"
        enter login mariadb-install-db --user=root --datadir="$home/data" --auth-root-authentication-method=normal --skip-test-db \
            >"$STATE/log/database.out" 2>&1 || return 1
    fi
    (detached_in login mariadbd --no-defaults --user=root --datadir="$home/data" --socket="$home/socket" --skip-networking --skip-grant-tables \
        --pid-file="$home/mariadbd.pid" --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900 >"$STATE/log/database.log" 2>&1) &
    wait_until 30 database_answers
}

database_answers() {
    enter login mariadb --no-defaults --socket="$STATE/db/socket" -e 'CREATE DATABASE IF NOT EXISTS slurm_acct_db' >/dev/null 2>&1
}

start_slurmdbd() {
    (detached_in login env MYSQL_UNIX_PORT="$STATE/db/socket" SLURM_CONF="$STATE/slurm/slurm.conf" slurmdbd >"$STATE/log/slurmdbd.out" 2>&1) &&
        wait_until 30 cluster_is_known
}

cluster_is_known() {
    enter login env SLURM_CONF="$STATE/slurm/slurm.conf" sacctmgr --immediate add cluster "$NAME" >"$STATE/log/sacctmgr.out" 2>&1
    [[ -n $(enter login env SLURM_CONF="$STATE/slurm/slurm.conf" sacctmgr --noheader --parsable2 show cluster "$NAME" 2>/dev/null) ]]
}

start_accounting() {
    write_slurmdbd_conf
    start_database && start_slurmdbd && return
    say 'accounting did not start'
    show_tail "$STATE/log/database.out"; show_tail "$STATE/log/database.log"; show_tail "$STATE/log/slurmdbd.log"
    return 1
}
