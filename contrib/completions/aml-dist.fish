# Completion of aml-dist for fish: subcommands, options, and kinds and keys after --aml-dist=.

# The option's text so far, with each word that can follow it.
function __aml_dist_option
    set -l text (commandline --current-token | string replace --regex '^--aml-dist=' '')
    if not string match --quiet '*,*' -- $text
        printf '%s\t%s\n' pytorch 'per process or per node' mpi 'names of Open MPI and Azure Batch' \
            tensorflow TF_CONFIG jax JAX_COORDINATOR_ADDRESS ray 'RAY_ADDRESS, for aml-dist ray' none 'no environment'
        return
    end
    set -l kind (string replace --regex ',.*' '' -- $text)
    set -l head (string replace --regex '[^,]*$' '' -- $text)
    set -l keys launch=per-process master_addr={ip,name} master_port= rdma={off,prefer,require} rdma_pairs={off,ring,log,all} health={off,prefer,require} verbose \
        trace trace=off hang= hang_action={end,report} hang_busy= order=topology stop= \
        node_count= process_count= process_count_per_node= process_count_per_instance=
    switch $kind
        case pytorch mpi
            set -a keys launch=per-node slurm_env={hide,keep} nproc_per_node={auto,cpu,gpu,}
            test $kind = pytorch; and set -a keys backend={nccl,gloo,mpi,ucc,xccl,hccl,amldist}
        case tensorflow
            set -a keys worker_count= parameter_server_count= chief_count={0,1} evaluator_count={0,1}
        case jax
        case ray
            set -e keys[1]
            set -a keys slurm_env={hide,keep}
        case '*'
            return
    end
    for key in $keys
        set -l name (string replace --regex '=.*' '' -- $key)
        string match --quiet --regex ",$name(=|,)" -- ",$head"; or echo $head$key
    end
end

set -l explain '__fish_seen_subcommand_from explain doctor'
set -l doctor '__fish_seen_subcommand_from doctor'
complete -c aml-dist -f
complete -c aml-dist -n __fish_use_subcommand -a explain -d 'Show the environment of each task'
complete -c aml-dist -n __fish_use_subcommand -a order -d 'Write a host file along the switches'
complete -c aml-dist -n __fish_use_subcommand -a stop -d 'Ask the ranks of a step to stop'
complete -c aml-dist -n __fish_use_subcommand -a doctor -d 'Say what frameworks make of it'
complete -c aml-dist -n __fish_use_subcommand -a check -d 'Verify that nodes can do RDMA'
complete -c aml-dist -n __fish_use_subcommand -a check-config -d 'Examine files of the administrator'
complete -c aml-dist -n '__fish_seen_subcommand_from check-config' -F
complete -c aml-dist -n '__fish_seen_subcommand_from check-config' -l as -x -a 'plugstack site skus instance-types' -d 'What FILE is'
complete -c aml-dist -n '__fish_seen_subcommand_from check-config' -l json -d 'Print JSON'
complete -c aml-dist -n __fish_use_subcommand -a exec -d 'Expand $RANK and its like in a command'
complete -c aml-dist -n __fish_use_subcommand -l version -d 'Print the release'
complete -c aml-dist -n __fish_use_subcommand -a keep -d 'Start a step again without the guilty node'
set -l keep '__fish_seen_subcommand_from keep'
complete -c aml-dist -n $keep -l spares -x -d 'Nodes that wait until one is needed'
complete -c aml-dist -n $keep -l retries -x -d 'How often it is started again'
complete -c aml-dist -n $keep -l per-hour -x -d 'How often within an hour'
complete -c aml-dist -n $keep -l min-nodes -x -d 'Go on with fewer nodes, down to this number'
complete -c aml-dist -n $keep -l no-restart-on -x -d 'Statuses after which it is not started again'
complete -c aml-dist -n $keep -l checkpoints -r -a '(__fish_complete_directories)' -d 'No new file below it in two starts: stop'
complete -c aml-dist -n $keep -l progress -r -d 'The same for a file or a command'
complete -c aml-dist -n $keep -l grace -x -d 'Seconds for the other ranks when one fails'
complete -c aml-dist -n $keep -l requeue -d 'Without a spare, back to the queue'
complete -c aml-dist -n $keep -l requeue-at-limit -d 'Back to the queue after an agreed stop'
complete -c aml-dist -n $keep -l health -x -a 'off quick bench' -d 'Check nodes before they are used'
complete -c aml-dist -n $keep -l json -d 'Each start and decision as a line'
complete -c aml-dist -n __fish_use_subcommand -a ray -d 'Start Ray on the nodes of a step'
set -l ray '__fish_seen_subcommand_from ray'
complete -c aml-dist -n $ray -l head-args -x -d 'Words for ray start on node 0'
complete -c aml-dist -n $ray -l worker-args -x -d 'The same on the other nodes'
complete -c aml-dist -n $ray -l dashboard -d 'With the dashboard'
complete -c aml-dist -n $ray -l wait -x -d 'Seconds until nodes have joined'
complete -c aml-dist -n $ray -l grace -x -d 'Seconds from SIGTERM to SIGKILL'
complete -c aml-dist -n $ray -l temp-dir -r -a '(__fish_complete_directories)' -d 'Where the folder is made'
complete -c aml-dist -n $ray -l keep -d 'Keep the folder when the step fails'
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
complete -c aml-dist -n $doctor -l mpi -x -a 'pmix none' -d 'MPI type of an imagined step'
complete -c aml-dist -n $doctor -l env-file -r -F -d 'A saved environment'
complete -c aml-dist -n $doctor -l env -x -d 'Set NAME=VALUE or remove NAME'
complete -c aml-dist -n $doctor -l framework -x -a 'torch lightning transformers accelerate deepspeed ignite horovod mpi mpi4py tensorflow keras jax ray gloo nccl amldist torch-amldist gpus' -d 'Only this one'
complete -c aml-dist -n $doctor -l launcher -x -a 'srun torchrun torch.distributed.launch "accelerate launch" "aml-dist ray"' -d 'Only this one'

set -l trace '__fish_seen_subcommand_from trace'
complete -c aml-dist -n __fish_use_subcommand -a trace -d 'Say which rank of a step is behind'
complete -c aml-dist -n $trace -a '(__fish_complete_directories)' -d 'Folder with recorders'
complete -c aml-dist -n $trace -l last -x -d 'Calls of each rank in JSON and picture'
complete -c aml-dist -n $trace -l svg -r -F -d 'Draw the timeline too'
complete -c aml-dist -n $trace -l waits-svg -r -F -d 'Draw who waits for whom too'
complete -c aml-dist -n $trace -l stacks -d 'Then say where each process is'
complete -c aml-dist -n $trace -l watch -x -d 'Look again after so many seconds'
complete -c aml-dist -n $trace -l export-fr -r -a '(__fish_complete_directories)' -d 'Write dumps for torchfrtrace'
complete -c aml-dist -n $trace -l json -d 'An object for programs'
complete -c aml-dist -n $trace -l format -x -a 'text json openmetrics' -d 'How the result is printed'

set -l check '__fish_seen_subcommand_from check'
complete -c aml-dist -n $check -l policy -x -a 'require prefer off' -d 'How strict'
complete -c aml-dist -n $check -l sku -x -d 'What the node should have'
complete -c aml-dist -n $check -l sku-table -r -F -d 'Table of SKUs'
complete -c aml-dist -n $check -l sysfs-root -r -F -d 'Read this folder instead of /sys'
complete -c aml-dist -n $check -l dev-root -r -F -d 'Look here for device nodes'
complete -c aml-dist -n $check -l baseline -r -F -d 'Keep error counters in this file'
complete -c aml-dist -n $check -l kernel-log -r -F -d 'Read this instead of /dev/kmsg'
complete -c aml-dist -n $check -l wait -x -d 'Wait for ports that are coming up'
complete -c aml-dist -n $check -l timeout -x -d 'For everything that may hang'
complete -c aml-dist -n $check -l port -x -d 'Where the nodes of a step meet'
complete -c aml-dist -n $check -l pairs -d 'Write to nodes further away too'
complete -c aml-dist -n $check -l bandwidth -d 'Measure the writes'
complete -c aml-dist -n $check -l bench -d 'Measure bandwidth and latency'
complete -c aml-dist -n $check -l exclude -d 'Print only the nodes to leave out'
complete -c aml-dist -n $check -l no-verbs -d 'Open no device'
complete -c aml-dist -n $check -l format -x -a 'text json openmetrics nodeverdict' -d 'How the result is printed'
complete -c aml-dist -n $check -l health -x -a 'require prefer off' -d 'What a sick GPU or host counts for'
complete -c aml-dist -n $check -l record -r -d 'Keep what is slow in this file'
complete -c aml-dist -n $check -l site-file -r -d 'Run the site_check lines of this file'
complete -c aml-dist -n $check -l unknown -x -a 'warn fail' -d 'What an unknown check does under require'
complete -c aml-dist -n $check -l list-sku -d 'Print the table of SKUs'
complete -c aml-dist -n $check -l json -d 'An object for programs'
complete -c aml-dist -n $check -s q -l quiet -d 'Only what is not well'
complete -c aml-dist -n $check -s v -l verbose -d 'Say what is being done'

set -l bench '__fish_seen_subcommand_from bench'
complete -c aml-dist -n __fish_use_subcommand -a bench -d 'Measure collectives'
complete -c aml-dist -n $bench -l op -x -d 'What is measured' \
    -a 'allreduce reduce broadcast allgather reduce_scatter alltoall gather scatter sendrecv barrier'
complete -c aml-dist -n $bench -l min -x -d 'Smallest array'
complete -c aml-dist -n $bench -l max -x -d 'Largest array'
complete -c aml-dist -n $bench -l factor -x -d 'From one size to the next'
complete -c aml-dist -n $bench -l type -x -d 'Element type' \
    -a 'float32 float64 float16 bfloat16 int8 uint8 int16 uint16 int32 uint32 int64 uint64'
complete -c aml-dist -n $bench -l redop -x -d 'How elements are combined' -a 'sum prod max min avg'
complete -c aml-dist -n $bench -l rounds -x -d 'Samples of each size'
complete -c aml-dist -n $bench -l in-place -d 'One buffer for input and output'
complete -c aml-dist -n $bench -l off-cache -d 'Buffers that no cache holds'
complete -c aml-dist -n $bench -l rewrite -d 'Inputs written anew before every call'
complete -c aml-dist -n $bench -l library-memory -d 'Buffers from amldist_alloc()'
complete -c aml-dist -n $bench -l ranks -x -d 'Start ranks on this node'
complete -c aml-dist -n $bench -l peer -x -a openmpi -d 'Another library in the same run'
complete -c aml-dist -n $bench -l scaling -d 'Efficiency of a training step'
complete -c aml-dist -n $bench -l gradients -x -d 'Bytes of gradients in a step'
complete -c aml-dist -n $bench -l compute-ms -x -d 'Computing in a step'
complete -c aml-dist -n $bench -l topology -d 'How far each two ranks are from each other'
complete -c aml-dist -n $bench -l svg -r -F -d 'Draw the bandwidths too'
complete -c aml-dist -n $bench -l json -d 'An array for programs'
