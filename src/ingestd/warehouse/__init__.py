"""BigQuery jobs: building them, submitting them once, waiting for them, judging how they ended."""
