# shellcheck shell=bash
# IPv4 arithmetic: the subnet of a cluster and the addresses in it.

ip_to_number() {
    local a b c d
    IFS=. read -r a b c d <<<"$1"
    echo $(((10#$a << 24) + (10#$b << 16) + (10#$c << 8) + 10#$d))
}

number_to_ip() { echo "$(($1 >> 24 & 255)).$(($1 >> 16 & 255)).$(($1 >> 8 & 255)).$(($1 & 255))"; }

check_subnet() {
    local octet='(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])'
    [[ $1 =~ ^($octet\.){3}$octet/(1[6-9]|2[0-9])$ ]] ||
        usage_error "--subnet '$1': give IPv4 with a prefix from 16 to 29, such as 10.213.7.0/24"
    local bits=${1#*/} base
    base=$(ip_to_number "${1%/*}")
    ((base % (1 << (32 - bits)) == 0)) || usage_error "--subnet '$1' is not the first address of a /$bits"
}

# The switch has no address; the login machine is .1, the nodes follow.
machine_address() {
    local subnet=$1 index=$2
    number_to_ip $(($(ip_to_number "${subnet%/*}") + 1 + index))
}

subnet_room() { echo $(((1 << (32 - ${1#*/})) - 3)); }

subnets_overlap() {
    local bits=${1#*/} a b
    ((${2#*/} >= bits)) || bits=${2#*/}
    a=$(ip_to_number "${1%/*}") b=$(ip_to_number "${2%/*}")
    ((a >> (32 - bits) == b >> (32 - bits)))
}

# The name of the other cluster that has a part of this subnet.
subnet_owner() {
    local subnet=$1 mine=$2 other theirs
    for other in $(cluster_names); do
        theirs=$(stored_param "$other" subnet)
        if [[ $other == "$mine" || -z $theirs ]]; then continue; fi
        if subnets_overlap "$subnet" "$theirs"; then echo "$other"; return; fi
    done
}

name_hash() { cksum <<<"$1" | cut -d' ' -f1; }

derive_subnet() {
    local name=$1 try third
    third=$(name_hash "$name")
    for ((try = 0; try < 254; try++)); do
        local subnet="10.213.$(((third + try) % 254 + 1)).0/24"
        [[ -n $(subnet_owner "$subnet" "$name") ]] || { echo "$subnet"; return; }
    done
    fail "no free subnet in 10.213.0.0/16: name one with --subnet"
}
