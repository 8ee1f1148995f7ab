export HCCL_CONNECT_TIMEOUT=1200
source ./env.sh
NPUS_PER_NODE=16
NNODES=8
TP=1
PP=4
EP=32
MOE_ARGS="
    --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 --n-shared-experts 2 \
    --first-k-dense-replace 1 --expert-model-parallel-size ${EP} \
    --moe-fb-overlap --schedules-method dualpipev --recompute-norm
"
GPT_ARGS="
    --num-layers 32 --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16
    --multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
    --seq-length 4096 --max-position-embeddings 163840 --position-embedding-type rope
    --swiglu --disable-bias-linear --normalization RMSNorm --untie-embeddings-and-output-weights
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP}
    --use-flash-attn --use-fused-swiglu --reuse-fp32-param --use-distributed-optimizer
    --micro-batch-size 1 --global-batch-size 512 --bf16 --vocab-size 102400 --overlap-grad-reduce
    --hidden-dropout 0.0 --attention-dropout 0.0
"
python -m torch.distributed.launch --nproc_per_node $NPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py $GPT_ARGS $MOE_ARGS

