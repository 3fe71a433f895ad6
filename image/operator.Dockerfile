# The operator, and the agent of router pods. `python image/build.py operator`, or with Docker:
#   docker build -f image/operator.Dockerfile -t rwkv-operator/operator:dev .
ARG BASE=python:3.11-slim-bookworm
ARG BUILD_BASE=python:3.11-bookworm

FROM ${BUILD_BASE} AS tools
ARG UV_CACHE_DIR=/var/cache/uv
ENV UV_CACHE_DIR=${UV_CACHE_DIR} UV_LINK_MODE=copy UV_NO_PROGRESS=1 PATH=/opt/uv/bin:$PATH
COPY image/fetch.sh image/constraints/uv.txt /src/image/
RUN --mount=type=secret,id=ca \
    sh /src/image/fetch.sh python3 -m pip install --quiet --no-cache-dir --no-compile \
    --root-user-action=ignore --require-hashes --target /opt/uv -r /src/image/uv.txt

FROM tools AS env
COPY image/constraints/operator.txt /src/image/
RUN --mount=type=secret,id=ca --mount=type=cache,id=uv,target=/var/cache/uv \
    uv venv --quiet --python python3 /opt/rwkv/env \
    && sh /src/image/fetch.sh uv pip install --python /opt/rwkv/env/bin/python \
      --require-hashes -r /src/image/operator.txt \
    && echo /opt/rwkv/app > "$(echo /opt/rwkv/env/lib/python3*/site-packages)/app.pth" \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/rwkv/env/lib

FROM tools AS app
COPY image/constraints/build.txt /src/image/
RUN --mount=type=secret,id=ca --mount=type=cache,id=uv,target=/var/cache/uv \
    uv venv --quiet --python python3 /opt/rwkv/env \
    && sh /src/image/fetch.sh uv pip install --python /opt/rwkv/env/bin/python \
      --require-hashes -r /src/image/build.txt
COPY pyproject.toml /src/
COPY operator/rwkv_operator /src/operator/rwkv_operator
# One distribution holds both packages; this image gets one of them and its commands.
RUN cd /src && : > README.md && mkdir -p server \
    && uv pip install --python /opt/rwkv/env/bin/python --target /opt/rwkv/app \
      --offline --no-deps --no-build-isolation /src \
    && rm -f /opt/rwkv/app/.lock /opt/rwkv/app/bin/rwkv-server \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/rwkv/app

FROM ${BASE}
RUN echo 'rwkv:x:65532:65532:rwkv:/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'rwkv:x:65532:' >> /etc/group
ENV PATH=/opt/rwkv/app/bin:/opt/rwkv/env/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=env /opt/rwkv/env /opt/rwkv/env
COPY --from=app /opt/rwkv/app /opt/rwkv/app
USER 65532:65532
ENTRYPOINT ["rwkv-operator"]
