# An S3 server, one static binary. Only the end-to-end tests use it.
FROM scratch
COPY versitygw /versitygw
