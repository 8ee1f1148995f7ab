# Heddle for NVIDIA GPUs, with the libraries that it opens when a run needs them: cuBLASLt, cuDNN, NCCL. The image
# itself has not been built. From the root of the repository:
#
#   docker build -f tools/containers/cuda.Dockerfile -t heddle:cuda .
#   docker run --rm --gpus all -v "$PWD:/work" heddle:cuda doctor --device cuda
ARG CUDA=12.8.1
FROM nvidia/cuda:${CUDA}-cudnn-devel-ubuntu24.04 AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive
WORKDIR /source
COPY tools/packages.txt tools/packages.txt
# hadolint ignore=DL3008
RUN apt-get update \
    && sed 's/ *#.*//' tools/packages.txt | xargs apt-get install -y --no-install-recommends git dpkg-dev file \
    && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake -S . -B /build -G Ninja -DHEDDLE_TESTS=OFF -DHEDDLE_BENCH=OFF -DHEDDLE_CUDA=ON \
    && cmake --build /build --target heddle \
    && cd /build && cpack -G DEB

FROM nvidia/cuda:${CUDA}-cudnn-runtime-ubuntu24.04
ENV DEBIAN_FRONTEND=noninteractive
COPY --from=build /build/heddle_*.deb /tmp/
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/heddle_*.deb openmpi-bin \
    && rm -rf /var/lib/apt/lists/* /tmp/heddle_*.deb \
    && useradd --create-home heddle
USER heddle
WORKDIR /work
ENTRYPOINT ["heddle"]
CMD ["help"]
