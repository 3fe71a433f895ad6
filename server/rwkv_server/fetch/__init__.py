"""`rwkv-server fetch`: bring a model from a hub into a folder, once for all pods on a volume.

The vendors' own clients talk to their hubs; choosing files, resuming, checking and publishing are
here and the same for both. Nothing here imports torch or vLLM, and nothing that is fetched is run.
"""
