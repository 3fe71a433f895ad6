"""`rwkv-server inspect`: what a model is, what serving it takes, and everything wrong with it.

The checks are preflight's own; here each is asked, where a pod stops at the first that fails.
"""
