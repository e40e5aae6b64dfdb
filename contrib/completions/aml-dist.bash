# shellcheck shell=bash
# Completion of aml-dist for bash: subcommands, options, and kinds and keys after --aml-dist=.

# Words after --aml-dist= that can follow $1, the option's text so far; each with all of $1 that stays.
_aml_dist_option() {
    local text=$1 kind=${1%%,*} head key
    local common='launch=per-process master_addr=ip master_addr=name master_port= rdma=off rdma=prefer rdma=require
        rdma_pairs=off rdma_pairs=ring rdma_pairs=log rdma_pairs=all health=off health=prefer health=require
        verbose trace trace=off hang= hang_action=end hang_action=report hang_busy= order=topology stop= node_count= process_count= process_count_per_node= process_count_per_instance='
    local launcher='launch=per-node slurm_env=hide slurm_env=keep nproc_per_node=auto nproc_per_node=cpu
        nproc_per_node=gpu nproc_per_node='
    local -a keys=()
    if [[ $text != *,* ]]; then
        printf '%s\n' pytorch mpi tensorflow jax ray none
        return
    fi
    case $kind in
    pytorch) read -ra keys -d '' <<<"$common $launcher backend=nccl backend=gloo backend=mpi backend=ucc backend=xccl backend=hccl backend=amldist" ;;
    mpi) read -ra keys -d '' <<<"$common $launcher" ;;
    tensorflow)
        read -ra keys -d '' <<<"$common worker_count= parameter_server_count= chief_count=0 chief_count=1
            evaluator_count=0 evaluator_count=1" ;;
    jax) read -ra keys -d '' <<<"$common" ;;
    ray) read -ra keys -d '' <<<"${common/launch=per-process/} slurm_env=hide slurm_env=keep" ;;
    esac
    head=${text%,*},
    for key in "${keys[@]}"; do
        [[ ,$head =~ ,${key%%=*}[=,] ]] || printf '%s\n' "$head$key"
    done
}

_aml_dist() {
    local current=${COMP_WORDS[COMP_CWORD]} previous='' option=''
    local flags='--aml-dist= --nodelist --tasks-per-node --distribution --mapping --hostfile --task --gpus-per-node
        --cluster --job --step --restart --port-range --svg --json --help'
    local doctor='--mpi --env-file --env --framework --launcher'
    local frameworks='torch lightning transformers accelerate deepspeed ignite horovod mpi mpi4py tensorflow keras jax ray gloo nccl amldist torch-amldist gpus'
    [[ ${COMP_WORDS[1]-} != doctor ]] || flags="${flags/--svg/} $doctor"
    local check_flags='--policy --sku --sku-table --sysfs-root --dev-root --baseline --kernel-log --wait --timeout --port
        --pairs --bandwidth --bench --record --exclude --no-verbs --format --health --site-file --unknown --list-sku --json --quiet --verbose --help'
    COMPREPLY=()
    ((COMP_CWORD == 0)) || previous=${COMP_WORDS[COMP_CWORD - 1]}
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'bench check check-config doctor exec explain keep order ray stop trace --help --version' -- "$current")
        return
    fi

    # readline may have cut the words at '=' and ',': put --aml-dist=TEXT together again.
    local line=${COMP_LINE:0:COMP_POINT} kept
    option=${line##*[[:blank:]]}
    if [[ $option == --aml-dist=* || $line =~ [[:blank:]]--aml-dist[[:blank:]]+[^[:blank:]]*$ ]]; then
        option=${option#--aml-dist=}
        mapfile -t COMPREPLY < <(compgen -W "$(_aml_dist_option "$option")" -- "$option")
        # readline replaces only its current word: drop what stands before it.
        kept=${option%"${current#=}"}
        [[ $current == = ]] && kept=$option
        COMPREPLY=("${COMPREPLY[@]#"$kept"}")
        compopt -o nospace 2>/dev/null
        return
    fi

    if [[ ${COMP_WORDS[1]} == bench ]]; then
        local choices='--op --min --max --factor --type --redop --rounds --in-place --off-cache --rewrite --library-memory
            --ranks --peer --scaling --gradients --compute-ms --topology --svg --json --help'
        case $previous in
        --op) choices='allreduce reduce broadcast allgather reduce_scatter alltoall gather scatter sendrecv barrier' ;;
        --type) choices='float32 float64 float16 bfloat16 int8 uint8 int16 uint16 int32 uint32 int64 uint64' ;;
        --redop) choices='sum prod max min avg' ;;
        --peer) choices=openmpi ;;
        --min | --max | --factor | --rounds | --ranks | --gradients | --compute-ms) return ;;
        --svg) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current")
        return
    fi

    if [[ ${COMP_WORDS[1]} == trace ]]; then
        case $previous in
        --last) ;;
        --format) mapfile -t COMPREPLY < <(compgen -W 'text json openmetrics' -- "$current") ;;
        --svg | --waits-svg) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        --export-fr) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -W '--last --svg --waits-svg --json --format --stacks --watch --export-fr --help' -- "$current"; compgen -f -- "$current") ;;
        esac
        return
    fi

    if [[ ${COMP_WORDS[1]} == keep ]]; then
        local keep='--spares --retries --per-hour --min-nodes --no-restart-on --checkpoints --progress --grace --requeue --requeue-at-limit --health --json --help --'
        case $previous in
        --health) mapfile -t COMPREPLY < <(compgen -W 'off quick bench' -- "$current") ;;
        --checkpoints) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        --progress) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        --spares | --retries | --per-hour | --min-nodes | --no-restart-on | --grace) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$keep" -- "$current") ;;
        esac
        return
    fi

    if [[ ${COMP_WORDS[1]} == check-config ]]; then
        case $previous in
        --as) mapfile -t COMPREPLY < <(compgen -W 'plugstack site skus instance-types' -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -W '--as --json --help' -- "$current"; compgen -f -- "$current") ;;
        esac
        return
    fi

    if [[ ${COMP_WORDS[1]} == check ]]; then flags=$check_flags; fi
    case $previous in
    --policy | --health) mapfile -t COMPREPLY < <(compgen -W 'require prefer off' -- "$current") ;;
    --format) mapfile -t COMPREPLY < <(compgen -W 'text json openmetrics nodeverdict' -- "$current") ;;
    --unknown) mapfile -t COMPREPLY < <(compgen -W 'warn fail' -- "$current") ;;
    --sysfs-root | --dev-root) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    --sku | --wait | --timeout | --port) ;;
    --mpi) mapfile -t COMPREPLY < <(compgen -W 'pmix none' -- "$current") ;;
    --framework) mapfile -t COMPREPLY < <(compgen -W "$frameworks" -- "$current") ;;
    --launcher) mapfile -t COMPREPLY < <(compgen -W 'srun torchrun torch.distributed.launch' -- "$current") ;;
    --distribution | -m) mapfile -t COMPREPLY < <(compgen -W 'block cyclic plane=' -- "$current") ;;
    --hostfile | --svg | --env-file | --sku-table | --baseline | --kernel-log | --site-file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    --env | --nodelist | --tasks-per-node | --mapping | --task | --gpus-per-node | --cluster | --job | --step | --restart | \
        --port-range) ;;
    *)
        mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
        [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null
        ;;
    esac
}

complete -F _aml_dist aml-dist
