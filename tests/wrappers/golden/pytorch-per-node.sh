#!/bin/bash
#SBATCH --job-name=spirals-per-node
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/home/you/pytorch
#SBATCH --output=/home/you/aml-run/slurm-%j.out

# Written by aml-run X.Y.Z from pytorch-per-node.yml.
#
# Without effect here:
#   $schema: only editors read it.
#   environment: an environment that is registered with Azure ML is not here: give environment.image, add it
#   to environments: of the administrator's table, or prepare the software with --setup.

cd -- /home/you/pytorch 2>/dev/null || {
    echo "aml-dist: the job's folder is not there on $HOSTNAME, so the nodes do not share it: "/home/you/pytorch >&2
    exit 4
}
mkdir -p outputs logs 2>/dev/null || echo "aml-dist: outputs/ and logs/ cannot be made in $PWD" >&2

# ${{outputs.report}}
AML_OUTPUT_report="$PWD/outputs/$SLURM_JOB_ID/report"
export AML_OUTPUT_report
mkdir -p -- "$AML_OUTPUT_report" || exit

export MLFLOW_TRACKING_URI="${MLFLOW_TRACKING_URI:-$PWD/mlruns}"

export PET_REDIRECTS=1
export PET_TEE=1

# Each task gives this to bash, so that $RANK and its like are its own.
# The values of ${{...}} are put in here, as text.
# shellcheck disable=SC2016
command=$(aml-run --fill-in 'python3 -m torch.distributed.run --nproc_per_node ${{inputs.processes}} --nnodes 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT train_ddp.py --epochs ${{inputs.epochs}} --report ${{outputs.report}}/report.json' \
    inputs.epochs=5 \
    inputs.processes=2 \
    "outputs.report=$AML_OUTPUT_report") || exit
command='cd -- /home/you/pytorch || exit 4; '$command

srun --kill-on-bad-exit=1 --aml-dist=pytorch,launch=per-node bash -c "$command"
