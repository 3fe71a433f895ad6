"""What happened to states, as metrics of the API process."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

saves = Counter("rwkv_state_saves", "States that were saved.")
saved_bytes = Counter("rwkv_state_saved_bytes", "Bytes of their snapshots.")
resumes = Counter("rwkv_state_resumes", "Generations that went on from a state.", ["source"])
prefixes = Counter(
    "rwkv_state_prefixes", "Prompts whose beginning was looked for among earlier ones.", ["result"]
)
failures = Counter("rwkv_state_failures", "Wishes that weren't granted.", ["code"])
abandoned = Counter("rwkv_state_abandoned", "Turns that ended without a new state.")
held = Gauge("rwkv_states", "States in the store, where this engine counts them.")
held_bytes = Gauge("rwkv_states_bytes", "Bytes of all that is in the store.")
damaged = Gauge("rwkv_states_damaged", "States whose record can't be read.")
expired = Counter("rwkv_state_expired", "States whose time was over.")
commit_seconds = Histogram(
    "rwkv_state_commit_seconds", "From the end of a generation to its state in the store."
)
