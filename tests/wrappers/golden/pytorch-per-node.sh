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
#   environment: the software of the nodes is used: prepare it with --setup, or choose a container with your
#   site's option.

export PET_REDIRECTS=1
export PET_TEE=1

# ${{outputs.report}}
AML_OUTPUT_report="$PWD/outputs/$SLURM_JOB_ID/report"
export AML_OUTPUT_report
mkdir -p -- "$AML_OUTPUT_report" || exit

# Each task gives this to bash, so that $RANK and its like are its own.
# shellcheck disable=SC2016
command='python3 -m torch.distributed.run --nproc_per_node 2 --nnodes 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT train_ddp.py --epochs 5 --report "$AML_OUTPUT_report"/report.json'

srun --kill-on-bad-exit=1 --aml-dist=pytorch,launch=per-node bash -c "$command"
