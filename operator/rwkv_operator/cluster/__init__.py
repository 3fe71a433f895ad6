"""The only I/O of the operator: the API server, and the ops ports of engine and router pods."""
