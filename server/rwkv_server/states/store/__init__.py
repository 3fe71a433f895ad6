"""Saved states on a volume, in memory or on S3, with one behaviour on all of them.

    states      StateStore: records and snapshots of all tenants, what the rest of the server calls
    heads       which state a session is at: a log of claims and ends
    quota       what a tenant holds, by a listing
    sweep       what is over or was never finished goes; deletions that were interrupted go on
    opening     from settings to an open store
    layout      names of tenants, states and sessions as keys; pure
    blobs       what a backend must do: create-only puts, gets, listings, deletes
    volume      that on a local or network folder, synced; `disk` has its system calls
    objects     that on S3 and in memory, through obstore
    timed       a bound on every call
    threads     where blocking calls run

A key is written once and never changed. A state exists when its record does.
"""
