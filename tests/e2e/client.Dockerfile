# What an application in the cluster has: Python and the openai SDK. Only the end-to-end tests use it.
ARG BASE
FROM ${BASE}
COPY site /opt/client
ENV PYTHONPATH=/opt/client
