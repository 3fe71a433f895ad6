"""The recurrent state of a conversation as a thing with a name: saved, resumed, forked, moved.

    web/        HTTP: the layer in front of vLLM's app, resources, answers
    turns       one generation with a state: resolve, load, frame, commit
    store/      durable records and snapshots, on volumes and S3
    hot         snapshots in shared memory, which the engine's workers copy to and from
    connector/  the part inside the engine, on vLLM's KV connector interface

Data flows web → turns → store and hot; only `connector` and `events` know the engine.
"""
