"""The process that Kubernetes sees: preflight, the vLLM child, probes, drain, last words.

vLLM doesn't listen until its engine is up and stops the engine before its HTTP server, so probes,
progress and the drain have to be somebody else's. Nothing here imports torch or vLLM: the parent
must stay small and answer while the child is busy.
"""
