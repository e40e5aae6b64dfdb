# shellcheck shell=bash
# Command line options, the same way for every command.
#
#   parse_options 'name= conf=* json' "$@"
#
# fills OPT[name], OPT[conf] (a repeated option marked * is joined by newlines), OPT[json]=1,
# and REST with what follows the options (or follows --).

declare -gA OPT=()
declare -ga REST=()

parse_options() {
    local spec=" $1 " key value; shift
    OPT=() REST=()
    while [[ $# -gt 0 ]]; do
        case $1 in
        --) shift; break ;;
        -h) OPT[help]=1; shift; continue ;;
        --?*) ;;
        -?*) usage_error "unknown option $1" ;;
        *) break ;;
        esac
        key=${1#--} value=''
        if [[ $key == *=* ]]; then value=${key#*=} key=${key%%=*}; set -- "--$key" "$value" "${@:2}"; fi
        if [[ $key == help ]]; then OPT[help]=1; shift; continue; fi
        if [[ $spec == *" $key=* "* || $spec == *" $key= "* ]]; then
            [[ $# -ge 2 ]] || usage_error "--$key needs a value"
            store_option "$spec" "$key" "$2"; shift 2
        elif [[ $spec == *" $key "* && $value == '' ]]; then OPT[$key]=1; shift
        else usage_error "unknown option --$key"
        fi
    done
    REST=("$@")
}

store_option() {
    local spec=$1 key=$2 value=$3
    if [[ $spec == *" $key=* "* && -n ${OPT[$key]-} ]]; then OPT[$key]+=$'\n'$value
    else OPT[$key]=$value
    fi
}

# Options may stand behind the words too (break node2 link --name b): all words into REST.
parse_options_anywhere() {
    local spec=$1; shift
    local -A all=(); local -a words=(); local key
    set -- "$@"
    while :; do
        parse_options "$spec" "$@"
        for key in "${!OPT[@]}"; do all[$key]=${OPT[$key]}; done
        [[ ${#REST[@]} -gt 0 ]] || break
        words+=("${REST[0]}"); set -- "${REST[@]:1}"
    done
    for key in "${!all[@]}"; do OPT[$key]=${all[$key]}; done
    REST=("${words[@]}")
}
