"""What the states say over HTTP: generation with a state, and states as resources."""
