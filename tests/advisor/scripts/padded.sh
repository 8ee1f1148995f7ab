#!/bin/bash
# expects: DeepSeek-V3: tp 4 cp 1 dp 16 pp 8 ep 32 etp 1 microbatch 1, swap, bf16
export HCCL_CONNECT_TIMEOUT=3600
NPUS_PER_NODE=8
NNODES=64
EP=32
MOE_ARGS="
    --moe-grouped-gemm --moe-token-dispatcher-type alltoall --first-k-dense-replace 3 --n-shared-experts 1 \
    --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-router-num-groups 8 \
    --moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 --moe-router-score-function sigmoid \
    --moe-router-enable-expert-bias --expert-tensor-parallel-size 1 --moe-permutation-async-comm \
"
MEMORY_ARGS="
    --swap-optimizer --use-distributed-optimizer --recompute-granularity full --recompute-method uniform \
    --recompute-num-layers 1 --moe-fb-overlap --schedules-method dualpipev
"
python -m torch.distributed.launch --nproc_per_node $NPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py \
    --num-layers 64 --noop-layers 61,62,63 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 \
    --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 \
    --v-head-dim 128 --qk-layernorm --swiglu --normalization RMSNorm --disable-bias-linear \
    --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 129280 --mtp-num-layers 1 \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 3840 --bf16 --tensor-model-parallel-size 4 \
    --pipeline-model-parallel-size 8 --expert-model-parallel-size ${EP} --sequence-parallel --use-flash-attn \
    $MOE_ARGS $MEMORY_ARGS
