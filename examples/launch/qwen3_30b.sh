#!/bin/bash
# Qwen3-30B-A3B on 4 servers of 8, as one would start it with Megatron-LM: something for `heddle search --from` to read.
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
NNODES=${NNODES:-4}
TP=2
PP=2
EP=8

DATA=/data/corpus_text_document      # what tools/preprocess_data.py has written
CHECKPOINTS=/data/checkpoints/qwen3_30b

DISTRIBUTED_ARGS=(
  --nproc_per_node $GPUS_PER_NODE
  --nnodes $NNODES
  --node_rank ${NODE_RANK:-0}
  --master_addr ${MASTER_ADDR:-localhost}
  --master_port 6000
)

MODEL_ARGS=(
  --use-mcore-models
  --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144
  --num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128 --qk-layernorm
  --swiglu --disable-bias-linear --normalization RMSNorm --norm-epsilon 1e-6
  --position-embedding-type rope --rotary-base 1000000
  --seq-length 4096 --max-position-embeddings 40960
  --vocab-size 151936 --untie-embeddings-and-output-weights
  --attention-dropout 0.0 --hidden-dropout 0.0
)

MOE_ARGS=(
  --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768
  --moe-grouped-gemm --moe-token-dispatcher-type alltoall
  --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3
  --expert-model-parallel-size $EP --expert-tensor-parallel-size 1
)

PARALLEL_ARGS=(
  --tensor-model-parallel-size $TP --sequence-parallel
  --pipeline-model-parallel-size $PP
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
)

TRAINING_ARGS=(
  --bf16 --micro-batch-size 1 --global-batch-size 256 --train-iters 10000
  --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-iters 500
  --weight-decay 0.1 --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95
)

DATA_ARGS=(
  --data-path $DATA --split 99,1,0
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-30B-A3B
)

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
  "${MODEL_ARGS[@]}" "${MOE_ARGS[@]}" "${PARALLEL_ARGS[@]}" \
  "${TRAINING_ARGS[@]}" "${DATA_ARGS[@]}" \
  --save $CHECKPOINTS --save-interval 500 --log-interval 1 2>&1 | tee log.txt
