#!/bin/bash
#SBATCH --job-name=spirals-ddp
#SBATCH --comment="experiment: spirals; owner=nobody"
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
#SBATCH --chdir=/home/you/pytorch
#SBATCH --output=/home/you/aml-run/slurm-%j.out

# Tell three spirals apart, with data-parallel PyTorch.
# Written by aml-run X.Y.Z from pytorch.yml.
#
# Without effect here:
#   $schema: only editors read it.
#   environment: the software of the nodes is used: prepare it with --setup, or choose a container with your
#   site's option.
#   compute: no table says what it is here: choose with --partition and --constraint.

# ${{outputs.report}}
AML_OUTPUT_report="$PWD/outputs/$SLURM_JOB_ID/report"
export AML_OUTPUT_report
mkdir -p -- "$AML_OUTPUT_report" || exit

# Each task gives this to bash, so that $RANK and its like are its own.
# shellcheck disable=SC2016
command='python3 train_ddp.py --epochs 5 --learning-rate 0.006 --report "$AML_OUTPUT_report"/report.json'

srun --kill-on-bad-exit=1 --aml-dist=pytorch bash -c "$command"
