# Heddle for CPUs: built in one stage, with only its run-time libraries in the other. From the root of the repository:
#
#   docker build -f tools/containers/cpu.Dockerfile -t heddle:cpu .
#   docker run --rm -v "$PWD:/work" heddle:cpu plan Qwen3-30B-A3B --devices 64
FROM debian:bookworm-slim AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /source
COPY tools/packages.txt tools/packages.txt
# hadolint ignore=DL3008
RUN apt-get update \
    && sed 's/ *#.*//' tools/packages.txt | xargs apt-get install -y --no-install-recommends git dpkg-dev file \
    && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake -S . -B /build -G Ninja -DHEDDLE_TESTS=OFF -DHEDDLE_BENCH=OFF -DHEDDLE_CUDA=OFF \
    && cmake --build /build --target heddle \
    && cd /build && cpack -G DEB

FROM debian:bookworm-slim
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
