# The engine: vLLM, our plugins, the parent process, the bundled model.
# `python image/build.py server`, or with Docker and PyTorch's own index of CPU wheels:
#   docker build -f image/server.Dockerfile --build-arg TORCH_INDEX=<index> -t rwkv-operator/server:dev .
# Each hardware stack has a stage `env-<stack>` for its packages and a last stage of its own name.
ARG BASE=python:3.11-slim-bookworm
ARG BUILD_BASE=python:3.11-bookworm

FROM ${BUILD_BASE} AS tools
ARG UV_CACHE_DIR=/var/cache/uv
ENV UV_CACHE_DIR=${UV_CACHE_DIR} UV_LINK_MODE=copy UV_NO_PROGRESS=1 PATH=/opt/uv/bin:$PATH
COPY image/fetch.sh image/constraints/uv.txt /src/image/
RUN --mount=type=secret,id=ca \
    sh /src/image/fetch.sh python3 -m pip install --quiet --no-cache-dir --no-compile \
    --root-user-action=ignore --require-hashes --target /opt/uv -r /src/image/uv.txt

FROM tools AS env-cpu
ARG TORCH_INDEX=
COPY image/engine_env.py image/slim.py /src/image/
COPY image/constraints/cpu.txt /src/image/constraints/
RUN --mount=type=secret,id=ca --mount=type=cache,id=uv,target=/var/cache/uv \
    sh /src/image/fetch.sh python3 /src/image/engine_env.py cpu --into /opt/rwkv/env \
      ${TORCH_INDEX:+--torch-index "$TORCH_INDEX"} \
    && python3 /src/image/slim.py /opt/rwkv/env \
    && echo /opt/rwkv/app > "$(echo /opt/rwkv/env/lib/python3*/site-packages)/app.pth"

FROM tools AS app
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

FROM ${BASE} AS cpu
# Libraries of the engine that a public base lacks; the bases of base.py have them, and no apt.
RUN if command -v apt-get >/dev/null; then \
      apt-get update && apt-get install -y --no-install-recommends libgomp1 libnuma1 \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN echo 'rwkv:x:65532:65532:rwkv:/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'rwkv:x:65532:' >> /etc/group \
    && mkdir -p /etc/rwkv /etc/rwkv-internal /models /var/lib/rwkv/state \
    && chown -R 65532:65532 /var/lib/rwkv
ENV PATH=/opt/rwkv/app/bin:/opt/rwkv/env/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 VLLM_NO_USAGE_STATS=1
COPY --from=env-cpu /opt/rwkv/env /opt/rwkv/env
COPY image/models/ /opt/rwkv/models/
COPY --from=app /opt/rwkv/app /opt/rwkv/app
USER 65532:65532
ENTRYPOINT ["rwkv-server"]
