"""`rwkv-server state …`: saved states from a shell, over the HTTP API of a deployment.

Knows the API and nothing behind it; neither the store nor the engine is imported.
"""
