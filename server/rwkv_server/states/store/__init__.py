"""Saved states on a volume, in memory or on S3, with one behaviour on all of them.

    states      StateStore: records and snapshots of all tenants, what the rest of the server calls
    records     one state: its record, the expiry that counts, what lies beside it
    pages       a tenant's states in a listing
    heads       which state a session is at: a log of claims and ends, `headlog`
    quota       what a tenant holds, by a listing
    forget      all of a session or a tenant goes, also over an interruption
    sweep       what is over or was never finished goes
    epoch       the store's name for itself
    place       which store it is, and who reads it
    opening     from settings to an open store
    layout      names of tenants, states and sessions as keys; `listing` reads them; both pure
    blobs       what a backend must do: create-only puts, gets, listings, deletes
    volume      that on a local or network folder, synced; `disk` has its system calls
    objects     that on S3 and in memory, through obstore
    timed       a bound on every call
    retried     another try, on S3
    threads     where blocking calls run

A key is written once and never changed. A state exists when its record does.
"""
