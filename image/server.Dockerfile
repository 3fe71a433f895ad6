# The engine's environment, our server with its vLLM plugin, the bundled models. Docker, after engine.Dockerfile:
#   docker build -f image/server.Dockerfile --build-arg ENGINE=rwkv-operator/engine:dev -t rwkv-operator/server:dev .
ARG ENGINE=rwkv-operator/engine:dev
ARG BUILD_BASE=python:3.11-bookworm

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
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/rwkv/app

FROM ${ENGINE}
COPY image/models/ /opt/rwkv/models/
COPY --from=app /opt/rwkv/app /opt/rwkv/app
USER 65532:65532
ENTRYPOINT ["rwkv-server"]
