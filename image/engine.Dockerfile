# What the server image stands on and what seldom changes: vLLM and its packages for one hardware stack.
# An image of its own, so that a change of our code neither builds nor hashes 2 GB. Docker:
#   docker build -f image/engine.Dockerfile --build-arg TORCH_INDEX=<index> -t rwkv-operator/engine:dev .
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
USER 65532:65532
