# The engine's environment, our server with its vLLM plugin, the bundled models. Docker, after engine.Dockerfile:
#   docker build -f image/server.Dockerfile --build-arg ENGINE=rwkv-operator/engine:dev -t rwkv-operator/server:dev .
ARG ENGINE=rwkv-operator/engine:dev
ARG BUILD_BASE=python:3.11-bookworm
# The vendor's image of that release: CANN, torch_npu, vllm-ascend, and vLLM without device code.
ARG ASCEND_BASE=quay.io/ascend/vllm-ascend:v0.18.0

FROM ${BUILD_BASE} AS app
ARG UV_CACHE_DIR=/var/cache/uv
ENV UV_CACHE_DIR=${UV_CACHE_DIR} UV_LINK_MODE=copy UV_NO_PROGRESS=1 PATH=/opt/uv/bin:$PATH
COPY image/fetch.sh image/constraints/uv.txt /src/image/
RUN --mount=type=secret,id=ca \
    sh /src/image/fetch.sh python3 -m pip install --quiet --no-cache-dir --no-compile \
    --root-user-action=ignore --require-hashes --target /opt/uv -r /src/image/uv.txt
COPY image/constraints/build.txt /src/image/
RUN --mount=type=secret,id=ca --mount=type=cache,id=uv,target=/var/cache/uv \
    uv venv --quiet --python python3 /opt/rwkv/env \
    && sh /src/image/fetch.sh uv pip install --python /opt/rwkv/env/bin/python \
      --require-hashes -r /src/image/build.txt
COPY pyproject.toml /src/
COPY server/rwkv_server /src/server/rwkv_server
# One distribution holds both packages; this image gets one of them and its command.
RUN cd /src && : > README.md && mkdir -p operator \
    && uv pip install --python /opt/rwkv/env/bin/python --target /opt/rwkv/app \
      --offline --no-deps --no-build-isolation /src \
    && rm -f /opt/rwkv/app/.lock /opt/rwkv/app/bin/rwkv-operator* \
    && python3 /opt/rwkv/app/rwkv_server/kernels/cpu_build.py \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/rwkv/app

# For Ascend, never built on the vendor's image nor run so far:
#   docker build -f image/server.Dockerfile --target ascend -t rwkv-operator/server:dev-ascend .
# By their metadata vllm 0.18.0 and vllm-ascend 0.18.0 exclude each other, and so does whatever lets pip
# resolve them again. Hence no dependencies: ours are there, but for one list; check.py makes sure.
FROM app AS wheel
RUN uv build --quiet --wheel --offline --no-build-isolation --python /opt/rwkv/env/bin/python \
    --out-dir /opt/rwkv/wheels /src

FROM ${ASCEND_BASE} AS ascend
USER root
COPY image/fetch.sh image/ascend/check.py image/constraints/ascend-image.txt /opt/rwkv/build/
COPY image/constraints/ascend-hub.txt /opt/rwkv/build/
COPY --from=wheel /opt/rwkv/wheels /opt/rwkv/build/wheels
RUN --mount=type=secret,id=ca cd /opt/rwkv/build && python3 check.py before packages.json \
    && sh fetch.sh python3 -m pip install --no-cache-dir --no-deps --require-hashes -r ascend-image.txt \
    && sh fetch.sh python3 -m pip install --no-cache-dir --no-deps --require-hashes -r ascend-hub.txt \
      --target /opt/rwkv/hub \
    && python3 -m pip install --no-cache-dir --no-deps --no-index wheels/*.whl \
    && rm -f "$(python3 -c 'import sysconfig; print(sysconfig.get_path("scripts"))')"/rwkv-operator* \
    && python3 check.py after packages.json && rm -rf /opt/rwkv/build
RUN echo 'rwkv:x:65532:65532:rwkv:/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'rwkv:x:65532:' >> /etc/group \
    && mkdir -p /etc/rwkv /etc/rwkv-internal /models /var/lib/rwkv/state \
    && chown -R 65532:65532 /var/lib/rwkv
COPY image/ascend/rwkv-server /opt/rwkv/bin/rwkv-server
COPY image/models/ /opt/rwkv/models/
ENV PATH=/opt/rwkv/bin:$PATH \
    HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 VLLM_NO_USAGE_STATS=1
USER 65532:65532
ENTRYPOINT ["rwkv-server"]

FROM ${ENGINE}
COPY image/models/ /opt/rwkv/models/
COPY --from=app /opt/rwkv/app /opt/rwkv/app
USER 65532:65532
ENTRYPOINT ["rwkv-server"]
