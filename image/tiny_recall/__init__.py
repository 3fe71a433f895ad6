"""Training of the bundled model: dialogues, network, loop, export and evaluation."""
