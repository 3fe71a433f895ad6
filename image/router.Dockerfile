# The router: HAProxy and nothing of ours but this file. `python image/build.py router`, or with
# Docker: docker build -f image/router.Dockerfile -t rwkv-operator/router:dev .
ARG BASE=haproxy:3.2
FROM ${BASE}
# Where the public image has haproxy, and where Debian's package has it.
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 99:99
# Soft stop: the ports are closed and open streams end by themselves.
STOPSIGNAL SIGUSR1
ENTRYPOINT []
CMD ["haproxy", "-W", "-db", "-f", "/etc/haproxy/haproxy.cfg"]
