#!/bin/bash
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1   # for overlap
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-32}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
TP=2; PP=8
DP=$(( WORLD_SIZE / (TP * PP) ))
GBS=$((DP * 128))
DATE=$(date +%s)
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
MODEL_ARGS=(
    --num-layers 94 --hidden-size 4096 \
    --ffn-hidden-size 12288
    --num-attention-heads 64 --group-query-attention --num-query-groups 4 --kv-channels 128
    --qk-layernorm
    --swiglu --disable-bias-linear --normalization RMSNorm --untie-embeddings-and-output-weights
    --position-embedding-type rope --seq-length 4096 --max-position-embeddings ${SEQ:-4096}
    --vocab-size 151936
    # --num-layers 1
    --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 1536 --expert-tensor-parallel-size 1
)
if [ -n "$EXTRA" ]; then
  MODEL_ARGS+=(--num-layers 7)
fi
MODEL_ARGS+=(--expert-model-parallel-size 32)
PARALLEL_ARGS="
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size $PP --num-layers-per-virtual-pipeline-stage 94
    --sequence-parallel --use-distributed-optimizer
"
PARALLEL_ARGS="--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP --sequence-parallel --use-distributed-optimizer"
echo "starting on $WORLD_SIZE" && torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    ${MODEL_ARGS[@]} $PARALLEL_ARGS \
    --micro-batch-size 1 --global-batch-size=$GBS --bf16 --hidden-dropout 0 --attention-dropout 0.0 \
    --lr 1e-4 --moe-brand-new-thing 3 2>&1 | tee log.txt

