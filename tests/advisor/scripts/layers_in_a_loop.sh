#!/bin/bash
# expects: Moonlight-16B-A3B: tp 1 cp 1 dp 8 pp 1 ep 8 etp 1 microbatch 1, bf16
while [[ $# -gt 0 ]]; do
  case $1 in
    --nodes) NODES=$2; shift 2 ;;
    *) shift ;;
  esac
done
N_DENSE=1
N_LAYERS=27
arr=()
for ((i = 0; i < N_LAYERS; i++)); do
  if ((i < N_DENSE)); then arr+=(0); else arr+=(1); fi
done
printf -v MOE_LAYER_FREQ "[%s]" "$(IFS=', '; echo "${arr[*]}")"
read -r -d '' COMMON <<'ARGS'
--multi-latent-attention --qk-layernorm --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --rotary-base 50000
ARGS
nohup python -m torch.distributed.run --nproc_per_node 8 --nnodes ${NODES:-1} pretrain_gpt.py $COMMON \
  --num-layers $N_LAYERS --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 11264 --num-experts 64 \
  --moe-router-topk 6 --moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 2816 \
  --moe-layer-freq "$MOE_LAYER_FREQ" --moe-router-score-function sigmoid --moe-router-enable-expert-bias \
  --moe-router-topk-scaling-factor 2.446 --vocab-size 163840 --position-embedding-type rope --seq-length 8192 \
  --micro-batch-size 1 --global-batch-size 64 --bf16 --expert-model-parallel-size 8 > train.log 2>&1 &
