#!/bin/bash
# expects: Llama-3-8B: tp 2 cp 1 dp 8 pp 1 microbatch 1, fp8
set -euo pipefail
DTYPE=${DTYPE:-fp8}
GPUS_PER_NODE=8
NNODES=2
MASTER_PORT=$((10000 + $SLURM_JOB_ID % 50000))
TP=2
SEQUENCE_PARALLEL=$(( ($TP > 1) ? 1 : 0 ))
source "$(dirname "$0")/models/dense.sh"
ARGS=("${MODEL_ARGS[@]}" --seq-length 8192 --micro-batch-size 1 --global-batch-size 128 --bf16)
if [[ "$DTYPE" == "fp8" ]]; then
  ARGS+=("--fp8-format hybrid" --fp8-recipe tensorwise)
fi
[ "$SEQUENCE_PARALLEL" -eq 1 ] && ARGS+=(--sequence-parallel)
if [ ! -f pretrain_gpt.py ]; then
  echo "run it from the root" >&2
  exit 1
fi
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_port $MASTER_PORT pretrain_gpt.py \
  ${ARGS[@]} --tensor-model-parallel-size $TP "$@"
