#!/bin/bash
# expects: Qwen3-8B: tp 2 cp 1 dp 4 pp 1 microbatch 1, bf16
MODEL_SIZE=${1:-8B}
case $MODEL_SIZE in
  4B) LAYERS=36; HIDDEN=2560; FFN=9728 ;;
  8B) LAYERS=36; HIDDEN=4096; FFN=12288 ;;
  *) echo "no such size"; exit 1 ;;
esac
launch() {
  local tp=$1
  shift
  local run_cmd="torchrun --nproc_per_node 8 pretrain_qwen.py --tensor-model-parallel-size ${tp} $*"
  echo ${run_cmd}
  eval ${run_cmd}
}
launch 2 --num-layers $LAYERS --hidden-size $HIDDEN --ffn-hidden-size $FFN --num-attention-heads 32 --swiglu \
  --group-query-attention --num-query-groups 8 --kv-channels 128 --qk-layernorm --normalization RMSNorm --bf16 \
  --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 151936 --position-embedding-type rope \
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 64
