"""What is checked before the engine starts: small readers of one fact each, and the rules on them.

Readers return facts or raise the error that the pod ends with. Nothing here imports torch or vLLM:
a broken model or a wrong package must be told in a second, not after the engine's own start.
"""
