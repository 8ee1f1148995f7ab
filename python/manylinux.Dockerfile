# A wheel that runs on distributions with glibc 2.28 or later (manylinux_2_28). Not tried yet.
#
#   docker build -f python/manylinux.Dockerfile --build-arg IMAGE=…/manylinux_2_28_x86_64 -o wheels .
#
# IMAGE is the image of that name by the Python Packaging Authority, of x86_64 or aarch64. What its packages lack
# is built here in the versions of Debian 12.
ARG IMAGE
FROM ${IMAGE} AS build
RUN dnf install -y pcre2-devel libzstd-devel zlib-devel pkgconf-pkg-config git && dnf clean all
RUN pipx install ninja
WORKDIR /libraries
RUN for each in fmtlib/fmt:9.1.0 google/highway:1.0.3 JuliaStrings/utf8proc:v2.8.0 nlohmann/json:v3.11.2 \
      marzer/tomlplusplus:v3.3.0 mapbox/protozero:v1.7.1; do \
      git clone --depth 1 --branch "${each#*:}" "https://github.com/${each%:*}" source && \
      cmake -S source -B objects -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
            -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF -DFMT_TEST=OFF -DJSON_BuildTests=OFF -DHWY_ENABLE_EXAMPLES=OFF \
            -DCMAKE_INSTALL_PREFIX=/usr && \
      cmake --build objects --target install && rm -rf source objects || exit 1; \
    done
WORKDIR /heddle
COPY . .
RUN for python in cp310-cp310 cp311-cp311 cp312-cp312; do \
      "/opt/python/$python/bin/pip" wheel . --no-deps --wheel-dir raw || exit 1; \
    done && \
    for wheel in raw/*.whl; do auditwheel repair --strip --wheel-dir wheels "$wheel" || exit 1; done

FROM scratch
COPY --from=build /heddle/wheels /
