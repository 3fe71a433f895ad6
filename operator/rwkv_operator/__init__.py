"""The operator: RWKVDeployment in, Kubernetes objects out."""
