"""A real Kubernetes for the demo and the tests, without Docker, systemd or a trace on the host.

Binaries are built from pinned Go modules (`tests/cluster/go`) and run in a network namespace of
their own. `python -m rwkv_cluster up` makes a whole cluster; `rwkv_cluster.apiserver` makes an API
server alone. Nothing in here knows the operator, the server or the chart.
"""
