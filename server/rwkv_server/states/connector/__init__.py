"""The part of states that runs inside the engine, on vLLM's KV connector interface.

`params` is what a request may load and save, signed by the API process. `scheduler` decides which
requests load, save and end in a step; it knows ids only and never raises. `worker` copies between
the pages of this rank's cache and the slots. `connector` is the class that vLLM loads, and `compat`
knows what differs between vLLM's versions.
"""
