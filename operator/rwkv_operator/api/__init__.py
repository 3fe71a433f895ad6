"""What users write and what the operator answers, as values. No I/O and no kopf here."""
