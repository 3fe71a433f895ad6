"""See `api_server`."""
