"""What stands in front of vLLM's routes: an allow-list, the key, and a look at request bodies.

Loaded by the vLLM child through `--middleware`. Plain ASGI without vLLM, so it is tested without.
"""
