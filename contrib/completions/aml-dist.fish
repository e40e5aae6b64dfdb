# Completion of aml-dist for fish: subcommands, options, and kinds and keys behind --aml-dist=.

# The option's text so far, with each word that can follow it.
function __aml_dist_option
    set -l text (commandline --current-token | string replace --regex '^--aml-dist=' '')
    if not string match --quiet '*,*' -- $text
        printf '%s\t%s\n' pytorch 'per process or per node' mpi 'names of Open MPI and Azure Batch' \
            tensorflow TF_CONFIG jax JAX_COORDINATOR_ADDRESS none 'no environment'
        return
    end
    set -l kind (string replace --regex ',.*' '' -- $text)
    set -l head (string replace --regex '[^,]*$' '' -- $text)
    set -l keys launch=per-process master_addr={ip,name} master_port= rdma={off,prefer,require} verbose \
        node_count= process_count= process_count_per_node= process_count_per_instance=
    switch $kind
        case pytorch mpi
            set -a keys launch=per-node slurm_env={hide,keep} nproc_per_node={auto,cpu,gpu,}
            test $kind = pytorch; and set -a keys backend={nccl,gloo,mpi,ucc,xccl,hccl}
        case tensorflow
            set -a keys worker_count= parameter_server_count= chief_count={0,1} evaluator_count={0,1}
        case jax
        case '*'
            return
    end
    for key in $keys
        set -l name (string replace --regex '=.*' '' -- $key)
        string match --quiet --regex ",$name(=|,)" -- ",$head"; or echo $head$key
    end
end

set -l explain '__fish_seen_subcommand_from explain'
complete -c aml-dist -f
complete -c aml-dist -n __fish_use_subcommand -a explain -d 'Show the environment of each task'
complete -c aml-dist -n __fish_use_subcommand -a exec -d 'Expand $RANK and its like in a command'
complete -c aml-dist -n __fish_use_subcommand -l version -d 'Print the release'
complete -c aml-dist -s h -l help -d Help
complete -c aml-dist -n $explain -l aml-dist -x -a '(__aml_dist_option)' -d 'The option as srun takes it'
complete -c aml-dist -n $explain -l nodelist -x -d 'Nodes of the step'
complete -c aml-dist -n $explain -l tasks-per-node -x -d 'Tasks of each node'
complete -c aml-dist -n $explain -s m -l distribution -x -a 'block cyclic plane=' -d 'How ranks are dealt'
complete -c aml-dist -n $explain -l mapping -x -d 'Process mapping'
complete -c aml-dist -n $explain -l hostfile -r -F -d 'File with the host of each rank'
complete -c aml-dist -n $explain -l svg -r -F -d 'Draw the layout into a file'
complete -c aml-dist -n $explain -l task -x -d 'Only this rank'
complete -c aml-dist -n $explain -l gpus-per-node -x -d 'GPUs that each task sees'
complete -c aml-dist -n $explain -l cluster -x -d 'Name of the cluster'
complete -c aml-dist -n $explain -l job -x -d 'Job id'
complete -c aml-dist -n $explain -l step -x -d 'Step id'
complete -c aml-dist -n $explain -l restart -x -d 'How often the job was requeued'
complete -c aml-dist -n $explain -l port-range -x -d 'Ports to choose from: LO-HI'
complete -c aml-dist -n $explain -l json -d 'An array for programs'
